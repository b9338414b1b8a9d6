package io.raptormq.interop.load;

import java.util.concurrent.Semaphore;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Asynchronous sends of single messages with a bounded number under way. */
record AsyncLoad(int threads, byte[] body, Semaphore underWay) implements Load {
    @Override
    public void send(DefaultMQProducer producer, String topic, Window window) throws InterruptedException {
        while (!window.isOver()) {
            underWay.acquire();
            long start = System.nanoTime();
            try {
                producer.send(new Message(topic, body), new Answer(window, start));
            } catch (InterruptedException stopped) {
                throw stopped;
            } catch (Exception error) {
                window.failed();
                underWay.release();
            }
        }
    }

    private final class Answer implements SendCallback {
        private final Window window;
        private final long start;

        Answer(Window window, long start) {
            this.window = window;
            this.start = start;
        }

        @Override
        public void onSuccess(SendResult result) {
            underWay.release();
            window.answered(start, 1);
        }

        @Override
        public void onException(Throwable error) {
            underWay.release();
            window.failed();
        }
    }
}
