package io.raptormq.interop.scenarios;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/**
 * The side of RocketMQ 5 in the meeting with a client of RocketMQ 4 ({@code io.raptormq.interop.old.OldClient}), on topics of both queue types: sends
 * automatic batches, a list and one message, reads what the other one sends.
 */
final class OldPeer implements Scenario {
    private static final List<String> TYPES = List.of("SimpleCQ", "BatchCQ");
    private static final int AUTOMATIC = 30;
    private static final int LISTED = 5;
    private static final int FROM_OLD = 10;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        Map<String, Object> outcome = new TreeMap<>();
        for (String type : TYPES) {
            cluster.createTopic("to_new_" + type, 1, type);
            send(cluster, cluster.createTopic("to_old_" + type, 1, type), type + ", ", outcome);
        }
        try (Reading reading = new Reading(cluster, "old_peer_reader")) {
            for (String type : TYPES) {
                Stream<MessageExt> messages = reading.all(cluster.name("to_old_" + type)).stream();
                outcome.put(type + ", stored in batches", messages.filter(each -> MessageSysFlag.check(each.getSysFlag(), MessageSysFlag.INNER_BATCH_FLAG)).count());
            }
        }
        for (String type : TYPES) {
            receive(cluster, cluster.name("to_new_" + type), type + ", ", outcome);
        }
        return outcome;
    }

    private static void send(Cluster cluster, String topic, String type, Map<String, Object> outcome) throws Exception {
        DefaultMQProducer producer = cluster.unstartedProducer("old_peer" + topic);
        producer.setAutoBatch(true);
        producer.batchMaxDelayMs(50); // rather one batch than many
        producer.start();
        CountDownLatch missing = new CountDownLatch(AUTOMATIC);
        List<Throwable> errors = new ArrayList<>();
        for (Message message : messages(topic, "auto", AUTOMATIC)) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    missing.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    errors.add(error);
                }
            });
        }
        if (!missing.await(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException(missing.getCount() + " of the automatic batches are not answered; " + errors);
        }
        outcome.put(type + "offset of the list", producer.send(messages(topic, "list", LISTED)).getQueueOffset());
        outcome.put(type + "offset of the last", producer.send(named(topic, "last")).getQueueOffset());
        producer.shutdown();
    }

    private static List<Message> messages(String topic, String name, int count) {
        return IntStream.range(0, count).mapToObj(i -> named(topic, name + "-" + i)).toList();
    }

    /** A message that says in properties which body and which unique id it was sent with. */
    private static Message named(String topic, String body) {
        Message message = Texts.message(topic, body);
        message.setTags(body.split("-")[0]);
        message.setKeys("key-" + body);
        MessageClientIDSetter.setUniqID(message);
        message.putUserProperty("name", body);
        message.putUserProperty("told", MessageClientIDSetter.getUniqID(message));
        return message;
    }

    private static void receive(Cluster cluster, String topic, String type, Map<String, Object> outcome) throws Exception {
        Inbox inbox = new Inbox();
        var consumer = cluster.pushConsumer("old_peer" + topic, topic, "*", inbox);
        consumer.start();
        inbox.awaitBodies(FROM_OLD);
        consumer.shutdown();
        List<MessageExt> messages = inbox.messages();
        outcome.put(type + "received", messages.stream().map(OldPeer::describe).sorted().collect(Collectors.toList()));
        outcome.put(type + "received, unique ids", messages.stream().map(MessageExt::getMsgId).distinct().count());
    }

    private static String describe(MessageExt message) {
        return message.getQueueOffset() + " " + Inbox.text(message) + " " + message.getTags() + " " + message.getKeys();
    }
}
