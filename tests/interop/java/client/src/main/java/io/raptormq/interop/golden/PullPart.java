package io.raptormq.interop.golden;

import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.message.MessageQueue;

/** A pull consumer: pulls that find, miss and overrun, offsets read, written, searched. */
@SuppressWarnings("deprecation") // the lite pull consumer hides the single pull that is wanted here
final class PullPart {
    private final String nameServer;

    PullPart(String nameServer) {
        this.nameServer = nameServer;
    }

    void run() throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("golden_puller");
        GoldenSession.configure(consumer, nameServer, "golden_puller");
        consumer.start();
        try {
            MessageQueue queue = new MessageQueue(GoldenSession.TOPIC, "broker-a", 0);
            consumer.fetchSubscribeMessageQueues(GoldenSession.TOPIC);
            long end = consumer.maxOffset(queue);
            consumer.minOffset(queue);
            consumer.searchOffset(queue, System.currentTimeMillis() - 60_000);
            consumer.earliestMsgStoreTime(queue);
            consumer.pull(queue, "*", 0, 32);
            consumer.pull(queue, "A || B", 0, 2);
            consumer.pull(queue, "nobody", 0, 32);
            consumer.pull(queue, "*", end, 32);
            consumer.pull(queue, "*", end + 100, 32);
            consumer.updateConsumeOffset(queue, end);
            consumer.getOffsetStore().persist(queue);
            consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE);
            consumer.getOffsetStore().readOffset(new MessageQueue(GoldenSession.TOPIC, "broker-a", 1), ReadOffsetType.READ_FROM_STORE);
        } finally {
            consumer.shutdown();
        }
    }
}
