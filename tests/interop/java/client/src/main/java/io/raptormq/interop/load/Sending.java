package io.raptormq.interop.load;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** A way to send: threads that repeat one call until they are stopped. */
abstract class Sending {
    static final int BODY_BYTES = 1024;
    static final int BATCH_SIZE = 32;
    static final int IN_FLIGHT = 1024;

    private final String topic;
    private final int threads;
    private final Latencies latencies = new Latencies();
    private final AtomicLong failures = new AtomicLong();
    private final List<Thread> running = new ArrayList<>();
    private volatile boolean stopping;
    private volatile Throwable lastFailure;

    private Sending(String topic, int threads) {
        this.topic = topic;
        this.threads = threads;
    }

    static Sending of(String mode, String topic) {
        return switch (mode) {
            case "sync" -> new Sync(topic);
            case "async" -> new Async(topic);
            case "batch" -> new Batch(topic);
            default -> throw new IllegalArgumentException("the mode is sync, async or batch: " + mode);
        };
    }

    /** One call; returns when the next one may be made. */
    abstract void send(DefaultMQProducer producer) throws Exception;

    void start(DefaultMQProducer producer) throws Exception {
        producer.send(message()); // creates the topic before the threads ask for it all at once
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(() -> repeat(producer), "load-" + i);
            thread.start();
            running.add(thread);
        }
    }

    void begin() {
        latencies.begin();
    }

    Measured end() {
        return latencies.end();
    }

    void stop() throws InterruptedException {
        stopping = true;
        for (Thread thread : running) {
            thread.join();
        }
    }

    long failures() {
        return failures.get();
    }

    Throwable lastFailure() {
        return lastFailure;
    }

    final Message message() {
        return new Message(topic, "tag", new byte[BODY_BYTES]);
    }

    final void succeeded(long started, int messages) {
        latencies.succeeded(System.nanoTime() - started, messages);
    }

    final void failed(Throwable cause) {
        lastFailure = cause;
        failures.incrementAndGet();
        latencies.failed();
    }

    private void repeat(DefaultMQProducer producer) {
        while (!stopping) {
            try {
                send(producer);
            } catch (Exception e) {
                failed(e);
            }
        }
    }

    /** 32 threads, each waits for its acknowledgement. */
    private static final class Sync extends Sending {
        Sync(String topic) {
            super(topic, 32);
        }

        @Override
        void send(DefaultMQProducer producer) throws Exception {
            long started = System.nanoTime();
            producer.send(message());
            succeeded(started, 1);
        }
    }

    /** Two threads send with callbacks; at most 1,024 messages are under way. */
    private static final class Async extends Sending {
        private final Semaphore room = new Semaphore(IN_FLIGHT);

        Async(String topic) {
            super(topic, 2);
        }

        @Override
        void send(DefaultMQProducer producer) throws Exception {
            if (!room.tryAcquire(1, TimeUnit.SECONDS)) {
                return;
            }
            long started = System.nanoTime();
            try {
                producer.send(message(), new SendCallback() {
                    @Override
                    public void onSuccess(SendResult result) {
                        room.release();
                        succeeded(started, 1);
                    }

                    @Override
                    public void onException(Throwable cause) {
                        room.release();
                        failed(cause);
                    }
                });
            } catch (Exception e) {
                room.release();
                throw e;
            }
        }
    }

    /** Eight threads send lists of 32. */
    private static final class Batch extends Sending {
        Batch(String topic) {
            super(topic, 8);
        }

        @Override
        void send(DefaultMQProducer producer) throws Exception {
            List<Message> messages = new ArrayList<>(BATCH_SIZE);
            for (int i = 0; i < BATCH_SIZE; i++) {
                messages.add(message());
            }
            long started = System.nanoTime();
            producer.send(messages);
            succeeded(started, BATCH_SIZE);
        }
    }
}
