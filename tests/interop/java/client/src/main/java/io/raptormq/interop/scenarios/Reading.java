package io.raptormq.interop.scenarios;

import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Reads a topic from beginning to end with single pulls, without a group's offsets. */
@SuppressWarnings("deprecation") // the lite pull consumer hides the single pull that is wanted here
final class Reading implements AutoCloseable {
    private final DefaultMQPullConsumer consumer;

    Reading(Cluster cluster, String group) throws Exception {
        consumer = new DefaultMQPullConsumer(cluster.name(group));
        cluster.configure(consumer);
        consumer.start();
    }

    DefaultMQPullConsumer consumer() {
        return consumer;
    }

    /** The queues of a topic in order. */
    List<MessageQueue> queues(String topic) throws Exception {
        return new ArrayList<>(new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic)));
    }

    /** All messages of a topic, queue by queue. */
    List<MessageExt> all(String topic) throws Exception {
        List<MessageExt> messages = new ArrayList<>();
        for (MessageQueue queue : queues(topic)) {
            readQueue(queue, messages);
        }
        return messages;
    }

    private void readQueue(MessageQueue queue, List<MessageExt> messages) throws Exception {
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        while (offset < end) {
            PullResult result = consumer.pull(queue, "*", offset, 32);
            if (result.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException("pull at " + offset + " of " + end + ": " + result.getPullStatus());
            }
            messages.addAll(result.getMsgFoundList());
            offset = result.getNextBeginOffset();
        }
    }

    @Override
    public void close() {
        consumer.shutdown();
    }
}
