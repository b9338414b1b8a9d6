package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Messages with a delay level come when they are due, to their queue and past tag filters; a level too high is the highest. */
@SuppressWarnings("deprecation") // offsets by the producer: no other client is needed here
final class DelayedMessages implements Scenario {
    private static final String DELAYED = "SCHEDULE_TOPIC_" + "X".repeat(4);
    private static final int HIGHEST = 17;
    private static final long ONE_SECOND_MS = 1_000;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("delayed", 4);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("delayed", topic, "late || never-late", inbox);
        consumer.start();
        DefaultMQProducer producer = cluster.producer("delayed");
        MessageQueue queue = producer.fetchPublishMessageQueues(topic).get(2);
        Map<String, Object> outcome = new TreeMap<>();
        SendResult sent = producer.send(message(topic, "one second", 1), queue);
        outcome.put("answer", sent.getSendStatus() + " for queue " + sent.getMessageQueue().getQueueId());
        producer.send(message(topic, "level 0", 0), queue);
        producer.send(message(topic, "level -1", -1), queue);
        Message other = message(topic, "other tag", 1);
        other.setTags("other");
        producer.send(other, queue);
        long before = parked(producer, queue);
        producer.send(message(topic, "level 99", 99), queue);
        outcome.put("level 99 waits with the highest", awaitParked(producer, queue, before) > before);
        producer.shutdown();
        inbox.awaitBodies(3);
        consumer.shutdown();
        for (MessageExt received : inbox.messages()) {
            outcome.put(Inbox.text(received), describe(received));
        }
        return outcome;
    }

    /** The reference indexes a message after it has answered. */
    private static long awaitParked(DefaultMQProducer producer, MessageQueue queue, long before) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (parked(producer, queue) == before && System.nanoTime() < deadline) {
            Thread.sleep(20);
        }
        return parked(producer, queue);
    }

    private static long parked(DefaultMQProducer producer, MessageQueue queue) throws Exception {
        return producer.maxOffset(new MessageQueue(DELAYED, queue.getBrokerName(), HIGHEST));
    }

    private static Message message(String topic, String body, int level) {
        Message message = Texts.message(topic, body);
        message.setTags("late");
        message.setKeys("key");
        message.setDelayTimeLevel(level);
        return message;
    }

    private static Map<String, Object> describe(MessageExt message) {
        Map<String, Object> outcome = new TreeMap<>();
        boolean parked = message.getProperty(MessageConst.PROPERTY_REAL_TOPIC) != null; // others may be on their way for as long
        boolean waited = parked && message.getStoreTimestamp() - message.getBornTimestamp() >= ONE_SECOND_MS;
        outcome.put("waited", waited);
        outcome.put("queue", message.getQueueId());
        outcome.put("reconsumed", message.getReconsumeTimes());
        TreeSet<String> names = new TreeSet<>(message.getProperties().keySet());
        names.removeAll(List.of("CONSUME_START_TIME"));
        outcome.put("properties", names);
        outcome.put("delay", message.getDelayTimeLevel());
        return outcome;
    }
}
