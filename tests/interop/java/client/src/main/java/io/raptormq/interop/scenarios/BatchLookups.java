package io.raptormq.interop.scenarios;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.admin.ConsumeStats;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The messages of {@code send(list)}, on topics of both types: each is found by what is its own, reaches subscribers to its tag, is sent to
 * one consumer directly, and counts by itself.
 */
@SuppressWarnings("deprecation") // nothing else tells the id of the client
final class BatchLookups implements Scenario {
    private static final int COUNT = 4;
    private static final int CHOSEN = 2;
    private static final long MINUTE_MS = 60_000;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        Map<String, Object> outcome = new TreeMap<>();
        for (String type : List.of("SimpleCQ", "BatchCQ")) {
            look(cluster, type).forEach((question, answer) -> outcome.put(type + ", " + question, answer));
        }
        return outcome;
    }

    private static Map<String, Object> look(Cluster cluster, String type) throws Exception {
        String topic = cluster.createTopic("lookups_" + type, 1, type);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("lookups_" + type, topic, "blue || last", inbox);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.start();
        SendResult sent = send(cluster, topic, type);
        DefaultMQAdminExt admin = cluster.admin();
        awaitKey(admin, topic, "last");
        List<MessageExt> messages = read(cluster, topic, type);
        List<String> ids = messages.stream().limit(COUNT).map(MessageExt::getMsgId).collect(Collectors.toList());
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("own unique ids", new TreeSet<>(ids).size());
        outcome.put("ids are those of the send", ids.equals(Arrays.asList(sent.getMsgId().split(","))));
        List<String> byId = new ArrayList<>();
        List<Object> byKey = new ArrayList<>();
        for (int i = 0; i < COUNT; i++) {
            byId.add(byId(admin, topic, ids.get(i)));
            byKey.add(byKey(admin, topic, "key-" + i));
        }
        outcome.put("by unique id", byId);
        outcome.put("by key", byKey);
        inbox.await(seen -> seen.bodies().contains("last"), "the message behind the list");
        outcome.put("for subscribers to the tag", inbox.bodies());
        outcome.put("directly", directly(admin, consumer, topic, ids.get(CHOSEN), inbox));
        consumer.shutdown(); // tells the broker how far the group is
        outcome.put("consumed and lag", consumed(admin, consumer.getConsumerGroup(), sent.getMessageQueue()));
        return outcome;
    }

    /** A list, then a single message that tells when everything before is indexed. */
    private static SendResult send(Cluster cluster, String topic, String type) throws Exception {
        List<Message> list = Texts.messages(topic, "l", 0, COUNT);
        for (int i = 0; i < COUNT; i++) {
            list.get(i).setTags("blue");
            list.get(i).setKeys("key-" + i);
        }
        Message last = Texts.message(topic, "last");
        last.setTags("last");
        last.setKeys("last");
        DefaultMQProducer producer = cluster.producer("lookups_" + type);
        SendResult result = producer.send(list);
        producer.send(last);
        producer.shutdown();
        return result;
    }

    private static List<MessageExt> read(Cluster cluster, String topic, String type) throws Exception {
        try (Reading reading = new Reading(cluster, "lookups_reader_" + type)) {
            return reading.all(topic);
        }
    }

    private static void awaitKey(DefaultMQAdminExt admin, String topic, String key) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (!byKey(admin, topic, key).equals(new TreeSet<>(List.of(key))) && System.nanoTime() < deadline) {
            Thread.sleep(50);
        }
    }

    private static Object byKey(DefaultMQAdminExt admin, String topic, String key) throws Exception {
        long now = System.currentTimeMillis();
        try {
            return admin.queryMessage(topic, key, 32, now - MINUTE_MS, now + MINUTE_MS).getMessageList().stream()
                    .map(Inbox::text)
                    .collect(Collectors.toCollection(TreeSet::new));
        } catch (MQClientException missing) {
            return "none";
        }
    }

    private static String byId(DefaultMQAdminExt admin, String topic, String id) throws Exception {
        try {
            return Inbox.text(admin.viewMessage(topic, id));
        } catch (MQClientException missing) {
            return "none";
        }
    }

    /** What the consumer gets when an administrator asks for one message to be consumed again. */
    private static Object directly(DefaultMQAdminExt admin, DefaultMQPushConsumer consumer, String topic, String id, Inbox inbox)
            throws Exception {
        String client = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        int before = inbox.messages().size();
        try {
            Object result = admin.consumeMessageDirectly(consumer.getConsumerGroup(), client, topic, id).getConsumeResult();
            return result + " " + inbox.messages().stream().skip(before).map(Inbox::text).collect(Collectors.toList());
        } catch (MQClientException | MQBrokerException refused) {
            return "refused";
        }
    }

    /** Messages that the group is done with, and those that it is not, once it has said so. */
    private static String consumed(DefaultMQAdminExt admin, String group, MessageQueue queue) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (true) {
            ConsumeStats stats = admin.examineConsumeStats(group);
            long done = stats.getOffsetTable().get(queue).getConsumerOffset();
            if (done == COUNT + 1 || System.nanoTime() > deadline) {
                return done + ", " + stats.computeTotalDiff();
            }
            Thread.sleep(50);
        }
    }
}
