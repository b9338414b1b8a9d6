package io.raptormq.interop.scenarios;

import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;

/** The queues that a push consumer has been given by the last rebalance. */
final class Assignment {
    private static final long PATIENCE_SECONDS = 120;

    private Assignment() {}

    /** How many queues of its topics a consumer pulls from; its group's retry topic does not count. */
    @SuppressWarnings("deprecation") // no public method tells
    static long queues(DefaultMQPushConsumer consumer) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .filter(queue -> !queue.getTopic().startsWith("%RETRY%"))
                .count();
    }

    /** Waits until the consumer has so many queues; fails after two minutes. */
    static void await(DefaultMQPushConsumer consumer, int count) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (queues(consumer) != count) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited in vain for " + count + " queues, there are " + queues(consumer));
            }
            Thread.sleep(20); // the client tells nobody when it has rebalanced
        }
    }
}
