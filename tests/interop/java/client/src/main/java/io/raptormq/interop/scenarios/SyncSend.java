package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Synchronous sends with tag, keys, properties and flag; what is stored is what was sent, ids and offsets included. */
final class SyncSend implements Scenario {
    private static final int COUNT = 100;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("sync", 4);
        Map<String, SendResult> results = new TreeMap<>();
        Set<String> statuses = new TreeSet<>();
        DefaultMQProducer producer = cluster.producer("sync");
        for (int i = 0; i < COUNT; i++) {
            Message message = Texts.message(topic, "sync-" + i);
            message.setTags("tag" + i % 3);
            message.setKeys("key-" + i);
            message.setFlag(i);
            message.putUserProperty("number", "\u2116 " + i);
            SendResult result = producer.send(message);
            statuses.add(result.getSendStatus().name());
            results.put("sync-" + i, result);
        }
        producer.shutdown();
        try (Reading reading = new Reading(cluster, "sync_reader")) {
            int faithful = 0;
            for (MessageExt message : reading.all(topic)) {
                faithful += isFaithful(message, results.remove(Inbox.text(message))) ? 1 : 0;
            }
            return Map.of("statuses", statuses, "faithful", faithful, "missing", results.size());
        }
    }

    private static boolean isFaithful(MessageExt message, SendResult result) {
        String number = Inbox.text(message).substring("sync-".length());
        return message.getMsgId().equals(result.getMsgId())
                && message.getQueueId() == result.getMessageQueue().getQueueId()
                && message.getQueueOffset() == result.getQueueOffset()
                && message.getTags().equals("tag" + Integer.parseInt(number) % 3)
                && message.getKeys().equals("key-" + number)
                && message.getFlag() == Integer.parseInt(number)
                && message.getUserProperty("number").equals("\u2116 " + number);
    }
}
