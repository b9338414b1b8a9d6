package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Where a new group begins: at the first, at the last message, at a time. On a topic whose first message is still in memory the broker
 * lets every new group begin at 0, whatever it asked for.
 */
final class StartingPoint implements Scenario {
    private static final int EACH = 10;
    private static final long HOUR_MILLIS = 3_600_000;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        Map<String, Object> outcome = new TreeMap<>();
        long now = System.currentTimeMillis();
        for (ConsumeFromWhere where : new ConsumeFromWhere[] {
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        }) {
            outcome.put(where.name(), start(cluster, where.name(), where, now, EACH));
            outcome.put(where.name() + ", empty topic", start(cluster, where.name() + "_empty", where, now, 0));
        }
        ConsumeFromWhere timestamp = ConsumeFromWhere.CONSUME_FROM_TIMESTAMP;
        outcome.put("an hour ago", start(cluster, "an_hour_ago", timestamp, now - HOUR_MILLIS, EACH));
        outcome.put("in an hour", start(cluster, "in_an_hour", timestamp, now + HOUR_MILLIS, EACH));
        return outcome;
    }

    /** How many of the messages that were there before the group, and of those sent after it started, were received. */
    private static String start(Cluster cluster, String name, ConsumeFromWhere where, long time, int before) throws Exception {
        String topic = cluster.createTopic("start_" + name, 1);
        DefaultMQProducer producer = cluster.producer("start_" + name);
        send(producer, topic, "before", before);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("start_" + name, topic, "*", inbox);
        consumer.setConsumeFromWhere(where);
        consumer.setConsumeThreadMin(1); // in order: when the last message is there, so are the others
        consumer.setConsumeThreadMax(1);
        consumer.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(time));
        consumer.start();
        Assignment.await(consumer, 1);
        send(producer, topic, "after", EACH);
        inbox.await(received -> received.bodies().contains("after-" + (EACH - 1)), "the last message");
        consumer.shutdown();
        producer.shutdown();
        return count(inbox, "before") + " from before, " + count(inbox, "after") + " from after";
    }

    private static void send(DefaultMQProducer producer, String topic, String name, int count) throws Exception {
        for (Message message : Texts.messages(topic, name, 0, count)) {
            producer.send(message);
        }
    }

    private static long count(Inbox inbox, String name) {
        return inbox.bodies().stream().filter(body -> body.startsWith(name + "-")).count();
    }
}
