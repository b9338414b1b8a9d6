package io.raptormq.interop.scenarios;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** What a listener could not consume comes again later, and after too many times is a dead letter. */
final class Retries implements Scenario {
    private static final int MAX_RETRIES = 2;
    private static final int ONE_SECOND_LEVEL = 1;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("retries", 2);
        Map<String, Object> outcome = new TreeMap<>();
        DefaultMQProducer producer = cluster.producer("retries");
        for (String body : List.of("good", "once", "poison", "dead at once")) {
            Message message = Texts.message(topic, body);
            message.setTags("a");
            message.setKeys("key-" + body.replace(' ', '-'));
            message.putUserProperty("mine", "yes");
            producer.send(message);
        }
        producer.shutdown();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = consumer(cluster, topic, inbox);
        consumer.start();
        String dead = "%DLQ%" + consumer.getConsumerGroup();
        // good 1, once 2, poison 1 + MAX_RETRIES, dead at once 1
        inbox.await(seen -> seen.messages().size() >= 4 + 1 + MAX_RETRIES, "all deliveries");
        List<MessageExt> letters = awaitDeadLetters(cluster, dead, 2);
        outcome.put("unknown group", sendBack(cluster, inbox.messages().get(0), "nobody_knows_it", 0));
        outcome.put("offset of nothing", sendBack(cluster, inbox.messages().get(0), consumer.getConsumerGroup(), 1L << 50));
        consumer.shutdown();
        for (String body : inbox.bodies()) {
            outcome.put(body, inbox.messages().stream().filter(message -> Inbox.text(message).equals(body))
                    .map(message -> describe(message, topic)).toList());
        }
        letters.sort((one, other) -> Inbox.text(one).compareTo(Inbox.text(other)));
        outcome.put("dead letters", letters.stream().map(letter -> Inbox.text(letter) + " " + describe(letter, dead)).toList());
        return outcome;
    }

    private static DefaultMQPushConsumer consumer(Cluster cluster, String topic, Inbox inbox) throws Exception {
        DefaultMQPushConsumer consumer = cluster.pushConsumer("retries");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(MAX_RETRIES);
        consumer.subscribe(topic, "a");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            inbox.add(messages);
            String body = Inbox.text(messages.get(0));
            boolean first = messages.get(0).getReconsumeTimes() == 0;
            boolean fails = body.equals("poison") || (first && body.equals("once")) || body.equals("dead at once");
            context.setDelayLevelWhenNextConsume(body.equals("dead at once") ? -1 : ONE_SECOND_LEVEL);
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    private static List<MessageExt> awaitDeadLetters(Cluster cluster, String topic, int count) throws Exception {
        try (Reading reading = new Reading(cluster, "retries_dead")) {
            for (int tries = 0; ; tries++) {
                try {
                    List<MessageExt> letters = new ArrayList<>(reading.all(topic));
                    if (letters.size() >= count) {
                        return letters;
                    }
                } catch (org.apache.rocketmq.client.exception.MQClientException notYet) {
                    if (tries > 300) {
                        throw notYet;
                    }
                }
                Thread.sleep(100);
            }
        }
    }

    private static String sendBack(Cluster cluster, MessageExt message, String group, long offset) throws Exception {
        MessageExt copy = new MessageExt();
        copy.setTopic(message.getTopic());
        copy.setMsgId(message.getMsgId());
        copy.setCommitLogOffset(offset > 0 ? offset : message.getCommitLogOffset());
        String broker = cluster.admin().examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next().selectBrokerAddr();
        try {
            cluster.admin().getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl()
                    .consumerSendMessageBack(broker, "broker-a", copy, group, 0, 5_000, 16);
            return "0";
        } catch (MQBrokerException refused) {
            return Integer.toString(refused.getResponseCode());
        }
    }

    private static Map<String, Object> describe(MessageExt message, String topic) {
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("times", message.getReconsumeTimes());
        outcome.put("right topic", message.getTopic().equals(topic));
        TreeSet<String> names = new TreeSet<>(message.getProperties().keySet());
        names.removeAll(Collections.singleton("CONSUME_START_TIME"));
        outcome.put("properties", names);
        outcome.put("origin known", message.getProperty("ORIGIN_MESSAGE_ID") != null);
        outcome.put("delay", message.getDelayTimeLevel());
        return outcome;
    }
}
