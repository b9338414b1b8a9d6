package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Every answer that a pull can get, offsets by time, and a group's offset written and read back. */
@SuppressWarnings("deprecation") // the lite pull consumer hides the single pull that is wanted here
final class SinglePulls implements Scenario {
    private static final int COUNT = 40;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("single_pulls", 2);
        Map<String, Object> outcome = new TreeMap<>();
        try (Reading reading = new Reading(cluster, "single_pulls")) {
            DefaultMQPullConsumer consumer = reading.consumer();
            MessageQueue queue = reading.queues(topic).get(0);
            MessageQueue empty = reading.queues(topic).get(1);
            fill(cluster, topic, queue);
            outcome.put("bounds", consumer.minOffset(queue) + ".." + consumer.maxOffset(queue));
            outcome.put("empty bounds", consumer.minOffset(empty) + ".." + consumer.maxOffset(empty));
            outcome.put("from 0, at most 32", describe(consumer.pull(queue, "*", 0, 32)));
            outcome.put("from 5, at most 3", describe(consumer.pull(queue, "*", 5, 3)));
            outcome.put("tag even", describe(consumer.pull(queue, "even", 0, 32)));
            outcome.put("tag of nobody", describe(consumer.pull(queue, "nobody", 0, 32)));
            outcome.put("at the end", describe(consumer.pull(queue, "*", COUNT, 32)));
            outcome.put("behind the end", describe(consumer.pull(queue, "*", COUNT + 7, 32)));
            outcome.put("empty queue from 0", describe(consumer.pull(empty, "*", 0, 32)));
            outcome.put("empty queue from 9", describe(consumer.pull(empty, "*", 9, 32)));
            outcome.put("long ago", consumer.searchOffset(queue, System.currentTimeMillis() - 3_600_000));
            outcome.put("in an hour", consumer.searchOffset(queue, System.currentTimeMillis() + 3_600_000));
            outcome.put("no such topic", codeOf(consumer, new MessageQueue(cluster.name("missing"), queue.getBrokerName(), 0)));
            outcome.put("no such queue", codeOf(consumer, new MessageQueue(topic, queue.getBrokerName(), 99)));
            consumer.updateConsumeOffset(queue, 17);
            consumer.getOffsetStore().persist(queue);
            outcome.put("offset read back", awaitOffset(consumer, queue, 17));
            outcome.put("offset of empty", consumer.getOffsetStore().readOffset(empty, ReadOffsetType.READ_FROM_STORE));
        }
        return outcome;
    }

    private static void fill(Cluster cluster, String topic, MessageQueue queue) throws Exception {
        DefaultMQProducer producer = cluster.producer("single_pulls");
        for (int i = 0; i < COUNT; i++) {
            Message message = Texts.message(topic, "pulled-" + i);
            message.setTags(i % 2 == 0 ? "even" : "odd");
            producer.send(message, queue);
        }
        producer.shutdown();
    }

    /** The client's request to read can overtake the one-way request to write, so read until the value is there. */
    private static long awaitOffset(DefaultMQPullConsumer consumer, MessageQueue queue, long wanted) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        long offset = consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE);
        while (offset != wanted && System.nanoTime() < deadline) {
            Thread.sleep(20);
            offset = consumer.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE);
        }
        return offset;
    }

    private static String describe(PullResult result) {
        int count = result.getMsgFoundList() == null ? 0 : result.getMsgFoundList().size();
        String bounds = result.getMinOffset() + ".." + result.getMaxOffset();
        return result.getPullStatus() + " " + count + ", next " + result.getNextBeginOffset() + " of " + bounds;
    }

    private static int codeOf(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        try {
            consumer.pull(queue, "*", 0, 32);
            return 0;
        } catch (MQBrokerException refused) {
            return refused.getResponseCode();
        }
    }
}
