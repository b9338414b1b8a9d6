package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Messages are found by key, by unique key and by offset id, and by nothing else. */
final class Queries implements Scenario {
    private static final int MANY = 40;
    private static final int AT_MOST = 32;
    private static final long MINUTE_MS = 60_000;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("queries", 2);
        DefaultMQProducer producer = cluster.producer("queries");
        SendResult first = producer.send(message(topic, "first", "red green"));
        producer.send(message(topic, "second", "green"));
        for (int i = 0; i < MANY; i++) {
            producer.send(message(topic, "many-" + i, "common"));
        }
        SendResult last = producer.send(message(topic, "last", "last"));
        producer.shutdown();
        awaitIndexed(cluster.admin(), topic);
        Map<String, Object> outcome = new TreeMap<>();
        for (String key : List.of("red", "green", "gree", "red green", "common", "nothing")) {
            outcome.put("key " + key, byKey(cluster.admin(), topic, key, MINUTE_MS));
        }
        outcome.put("key red, an hour ago", byKey(cluster.admin(), topic, "red", -MINUTE_MS));
        outcome.put("unique key", Inbox.text(cluster.admin().viewMessage(topic, first.getMsgId())));
        outcome.put("offset id", Inbox.text(cluster.admin().viewMessage(topic, last.getOffsetMsgId())));
        outcome.put("unknown topic", byKey(cluster.admin(), cluster.name("no_such_topic"), "red", MINUTE_MS));
        return outcome;
    }

    private static Message message(String topic, String body, String keys) {
        Message message = Texts.message(topic, body);
        message.setKeys(keys);
        return message;
    }

    /** The index follows the log with a small delay. */
    private static void awaitIndexed(DefaultMQAdminExt admin, String topic) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (!"[last]".equals(byKey(admin, topic, "last", MINUTE_MS).toString()) && System.nanoTime() < deadline) {
            Thread.sleep(50);
        }
    }

    /** The bodies found, their number where there are many, or the code of the refusal. */
    private static Object byKey(DefaultMQAdminExt admin, String topic, String key, long untilMs) throws Exception {
        try {
            long now = System.currentTimeMillis();
            QueryResult result = admin.queryMessage(topic, key, AT_MOST, now - 60 * MINUTE_MS, now + untilMs);
            TreeSet<String> bodies = new TreeSet<>();
            result.getMessageList().forEach(message -> bodies.add(Inbox.text(message)));
            return bodies.size() > 3 ? (Object) bodies.size() : bodies;
        } catch (MQClientException refused) {
            return "code " + refused.getResponseCode();
        }
    }
}
