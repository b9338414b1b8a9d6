package io.raptormq.interop.load;

import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Synchronous sends of single messages. */
record SyncLoad(int threads, byte[] body) implements Load {
    @Override
    public void send(DefaultMQProducer producer, String topic, Window window) throws InterruptedException {
        while (!window.isOver()) {
            long start = System.nanoTime();
            try {
                producer.send(new Message(topic, body));
                window.answered(start, 1);
            } catch (InterruptedException stopped) {
                throw stopped;
            } catch (Exception error) {
                window.failed();
            }
        }
    }
}
