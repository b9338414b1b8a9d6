package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * One store in the hands of several brokers, one after the other. Each turn reads what the turns before have stored, adds messages of its
 * own, singly and as lists, and lets one and the same group consume: it must receive this turn's messages and no others.
 */
final class StoreExchange implements Scenario {
    private static final int EACH = 96;
    private static final int LIST = 32;

    private final int turn;

    StoreExchange(int turn) {
        this.turn = turn;
    }

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = turn == 0 ? cluster.createTopic("exchange", 4) : cluster.name("exchange");
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("found", found(cluster, topic, turn));
        DefaultMQProducer producer = cluster.producer("exchange");
        List<Message> messages = Texts.messages(topic, "exchange", turn * EACH, (turn + 1) * EACH);
        messages.forEach(message -> message.setTags("turn" + turn));
        for (Message message : messages.subList(0, EACH - LIST)) {
            producer.send(message);
        }
        producer.send(messages.subList(EACH - LIST, EACH));
        producer.shutdown();
        outcome.put("consumed", consume(cluster, topic).equals(Texts.bodies("exchange", turn * EACH, (turn + 1) * EACH)));
        outcome.put("left", found(cluster, topic, turn + 1));
        return outcome;
    }

    /** Whether the topic holds the messages of so many turns, their tags, and offsets without a gap. */
    private static boolean found(Cluster cluster, String topic, int turns) throws Exception {
        try (Reading reading = new Reading(cluster, "exchange_reader")) {
            Map<Integer, TreeSet<Long>> offsets = new TreeMap<>();
            Set<String> bodies = new TreeSet<>();
            boolean tagged = true;
            for (MessageExt message : reading.all(topic)) {
                bodies.add(Inbox.text(message));
                offsets.computeIfAbsent(message.getQueueId(), queue -> new TreeSet<>()).add(message.getQueueOffset());
                int number = Integer.parseInt(Inbox.text(message).substring("exchange-".length()));
                tagged &= message.getTags().equals("turn" + number / EACH);
            }
            boolean gapless = offsets.values().stream().allMatch(each -> each.last() == each.size() - 1);
            return bodies.equals(Texts.bodies("exchange", 0, turns * EACH)) && tagged && gapless;
        }
    }

    private static Set<String> consume(Cluster cluster, String topic) throws Exception {
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("exchange", topic, "*", inbox);
        consumer.setAwaitTerminationMillisWhenShutdown(10_000);
        consumer.start();
        inbox.awaitBodies(EACH);
        consumer.shutdown();
        return inbox.bodies();
    }
}
