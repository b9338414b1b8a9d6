package io.raptormq.interop.scenarios;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Orderly consumers share the queues of a topic and take them over from each other, a failure in between; order holds. */
final class OrderlyHandOver implements Scenario {
    private static final int KEYS = 4;
    private static final int EACH = 15;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("hand_over", 4);
        Inbox inbox = new Inbox();
        Inbox second = new Inbox();
        DefaultMQPushConsumer one = listen(cluster, topic, inbox, new Inbox());
        DefaultMQProducer producer = cluster.producer("hand_over");
        send(producer, topic, 0, EACH);
        inbox.awaitBodies(KEYS * EACH);
        DefaultMQPushConsumer other = listen(cluster, topic, inbox, second);
        int sent = EACH;
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60); second.messages().isEmpty() && System.nanoTime() < end; sent++) {
            send(producer, topic, sent, sent + 1); // until the other one has its share
            inbox.awaitBodies(KEYS * (sent + 1));
        }
        one.shutdown();
        send(producer, topic, sent, sent + EACH);
        inbox.awaitBodies(KEYS * (sent + EACH));
        producer.shutdown();
        other.shutdown();
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("the other one had its share", !second.messages().isEmpty());
        outcome.put("nothing is missing", inbox.bodies().size() == KEYS * (sent + EACH));
        outcome.put("keys in order", keysInOrder(inbox.messages()));
        return outcome;
    }

    private static void send(DefaultMQProducer producer, String topic, int from, int to) throws Exception {
        for (int i = from; i < to; i++) {
            for (int key = 0; key < KEYS; key++) {
                producer.send(Texts.message(topic, key + "-" + i), new SelectMessageQueueByHash(), key);
            }
        }
    }

    private static DefaultMQPushConsumer listen(Cluster cluster, String topic, Inbox inbox, Inbox own) throws Exception {
        DefaultMQPushConsumer consumer = cluster.pushConsumer("hand_over");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setSuspendCurrentQueueTimeMillis(100);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            if (Inbox.text(messages.get(0)).equals("1-3") && messages.get(0).getReconsumeTimes() == 0) {
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            own.add(messages);
            inbox.add(messages);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    /** Delivery is at least once: what comes again may go back, what comes for the first time may not. */
    private static long keysInOrder(List<MessageExt> messages) {
        Map<String, List<Integer>> firsts = new HashMap<>();
        for (MessageExt message : messages) {
            String[] parts = Inbox.text(message).split("-");
            List<Integer> seen = firsts.computeIfAbsent(parts[0], key -> new ArrayList<>());
            if (!seen.contains(Integer.parseInt(parts[1]))) {
                seen.add(Integer.parseInt(parts[1]));
            }
        }
        return firsts.values().stream().filter(numbers -> numbers.equals(numbers.stream().sorted().toList())).count();
    }
}
