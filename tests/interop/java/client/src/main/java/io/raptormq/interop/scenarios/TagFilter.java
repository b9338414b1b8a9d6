package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/** Push consumers with tag expressions receive what carries one of their tags and nothing else. */
final class TagFilter implements Scenario {
    private static final String[] TAGS = {"red", "green", "blue", "AaAa", "BBBB"};
    private static final int EACH = 20;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("tags", 2);
        DefaultMQProducer producer = cluster.producer("tags");
        for (int i = 0; i < EACH; i++) {
            for (String tag : TAGS) {
                Message message = Texts.message(topic, tag + "-" + i);
                message.setTags(tag);
                producer.send(message);
            }
            producer.send(Texts.message(topic, "untagged-" + i));
        }
        producer.shutdown();
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("red || blue", receive(cluster, topic, "some", "red || blue", 2 * EACH));
        // Two different tags with one hash code: the broker cannot tell them apart, the client can.
        outcome.put("AaAa", receive(cluster, topic, "colliding", "AaAa", EACH));
        outcome.put("*", receive(cluster, topic, "all", "*", (TAGS.length + 1) * EACH));
        return outcome;
    }

    private static Map<String, Object> receive(Cluster cluster, String topic, String group, String expression, int count)
            throws Exception {
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("tags_" + group, topic, expression, inbox);
        consumer.start();
        inbox.awaitBodies(count);
        consumer.shutdown();
        Set<String> kinds = new TreeSet<>();
        inbox.bodies().forEach(body -> kinds.add(body.substring(0, body.indexOf('-'))));
        return Map.of("bodies", inbox.bodies().size(), "tags", kinds);
    }
}
