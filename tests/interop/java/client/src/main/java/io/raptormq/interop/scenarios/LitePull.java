package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The lite pull consumer, with queues assigned and sought, and as a subscriber that commits. */
final class LitePull implements Scenario {
    private static final int COUNT = 120;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("lite_pull", 3);
        DefaultMQProducer producer = cluster.producer("lite_pull");
        for (Message message : Texts.messages(topic, "lite", 0, COUNT)) {
            producer.send(message);
        }
        producer.shutdown();
        Map<String, Object> outcome = new TreeMap<>();
        assign(cluster, topic, outcome);
        subscribe(cluster, topic, outcome);
        return outcome;
    }

    private static void assign(Cluster cluster, String topic, Map<String, Object> outcome) throws Exception {
        DefaultLitePullConsumer consumer = cluster.litePullConsumer("lite_assign");
        List<MessageQueue> queues = queues(cluster, topic);
        startAssigned(consumer, queues);
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        consumer.resume(queues);
        Inbox inbox = poll(consumer, COUNT);
        consumer.shutdown();
        outcome.put("assigned, all", inbox.bodies().equals(Texts.bodies("lite", 0, COUNT)));
        DefaultLitePullConsumer tail = cluster.litePullConsumer("lite_assign_tail");
        List<MessageQueue> one = queues.subList(0, 1);
        startAssigned(tail, one);
        long end = tail.offsetForTimestamp(one.get(0), System.currentTimeMillis() + 60_000);
        tail.seek(one.get(0), end - 3);
        tail.resume(one);
        Inbox last = poll(tail, 3);
        tail.shutdown();
        outcome.put("assigned, last three", last.bodies().size());
    }

    private static List<MessageQueue> queues(Cluster cluster, String topic) throws Exception {
        return cluster.admin().examineTopicStats(topic).getOffsetTable().keySet().stream().sorted().toList();
    }

    /**
     * Starts a consumer whose queues are paused until it has been told where to begin: a seek interrupts the thread on which the
     * queue's last pull ran, and where this has gone on to another queue, the client drops the messages it has just pulled of that one.
     */
    private static void startAssigned(DefaultLitePullConsumer consumer, List<MessageQueue> queues) throws Exception {
        consumer.setAutoCommit(false);
        consumer.assign(queues);
        consumer.pause(queues);
        consumer.start();
    }

    @SuppressWarnings("deprecation") // commit() is answered by a timer, commitSync() at once
    private static void subscribe(Cluster cluster, String topic, Map<String, Object> outcome) throws Exception {
        DefaultLitePullConsumer consumer = subscriber(cluster, topic);
        Inbox inbox = poll(consumer, COUNT);
        consumer.commitSync();
        consumer.shutdown();
        outcome.put("subscribed, all", inbox.bodies().equals(Texts.bodies("lite", 0, COUNT)));
        DefaultMQProducer producer = cluster.producer("lite_pull_more");
        for (Message message : Texts.messages(topic, "more", 0, 9)) {
            producer.send(message);
        }
        producer.shutdown();
        DefaultLitePullConsumer next = subscriber(cluster, topic);
        Inbox more = poll(next, 9);
        next.shutdown();
        outcome.put("committed, only the rest", more.bodies().equals(Texts.bodies("more", 0, 9)));
    }

    private static DefaultLitePullConsumer subscriber(Cluster cluster, String topic) throws Exception {
        DefaultLitePullConsumer consumer = cluster.litePullConsumer("lite_subscribe");
        consumer.setAutoCommit(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        return consumer;
    }

    private static Inbox poll(DefaultLitePullConsumer consumer, int count) {
        Inbox inbox = new Inbox();
        int silent = 0;
        while (inbox.bodies().size() < count && silent < 30) {
            List<MessageExt> messages = consumer.poll(1_000);
            inbox.add(messages);
            silent = messages.isEmpty() ? silent + 1 : 0;
        }
        return inbox;
    }
}
