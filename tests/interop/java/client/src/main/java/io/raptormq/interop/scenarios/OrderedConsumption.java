package io.raptormq.interop.scenarios;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages of one key go to one queue and are consumed in the order in which they were sent, under queue locks. */
final class OrderedConsumption implements Scenario {
    private static final int KEYS = 6;
    private static final int EACH = 30;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("ordered", 4);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("ordered");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            inbox.add(messages);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = cluster.producer("ordered");
        for (int i = 0; i < EACH; i++) {
            for (int key = 0; key < KEYS; key++) {
                producer.send(Texts.message(topic, key + "-" + i), new SelectMessageQueueByHash(), key);
            }
        }
        inbox.awaitBodies(KEYS * EACH);
        producer.shutdown();
        consumer.shutdown();
        return Map.of("keys in order", keysInOrder(inbox.messages()), "bodies", inbox.bodies().size());
    }

    private static long keysInOrder(List<MessageExt> messages) {
        Map<String, List<Integer>> numbers = new TreeMap<>();
        for (MessageExt message : messages) {
            String[] parts = Inbox.text(message).split("-");
            numbers.computeIfAbsent(parts[0], key -> new ArrayList<>()).add(Integer.parseInt(parts[1]));
        }
        return numbers.values().stream().filter(OrderedConsumption::isSorted).count();
    }

    private static boolean isSorted(List<Integer> numbers) {
        return numbers.equals(numbers.stream().sorted().toList());
    }
}
