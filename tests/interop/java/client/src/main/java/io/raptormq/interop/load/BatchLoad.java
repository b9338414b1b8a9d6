package io.raptormq.interop.load;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Synchronous sends of lists: {@code send(list)}. */
record BatchLoad(int threads, byte[] body, int listSize) implements Load {
    @Override
    public void send(DefaultMQProducer producer, String topic, Window window) throws InterruptedException {
        while (!window.isOver()) {
            List<Message> list = new ArrayList<>(listSize);
            for (int i = 0; i < listSize; i++) {
                list.add(new Message(topic, body));
            }
            long start = System.nanoTime();
            try {
                producer.send(list);
                window.answered(start, listSize);
            } catch (InterruptedException stopped) {
                throw stopped;
            } catch (Exception error) {
                window.failed();
            }
        }
    }
}
