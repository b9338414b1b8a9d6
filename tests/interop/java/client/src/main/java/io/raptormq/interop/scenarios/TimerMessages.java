package io.raptormq.interop.scenarios;

import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages with a time of their own come then and not before, can be recalled until then, and refuse times too far away. */
final class TimerMessages implements Scenario {
    /** A message is recalled in that time, or a send ends, also on a busy machine. */
    private static final long DELAY_MS = 5_000;

    private static final long LATEST_MS = 259_200_000;
    private static final int HANDLE_PARTS = 5;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("timers", 2);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("timers", topic, "late", inbox);
        consumer.start();
        DefaultMQProducer producer = cluster.producer("timers");
        producer.send(Texts.message(topic, "at once")); // without the tag; connects, which on a busy machine takes longer than the delays
        Map<String, Object> outcome = new TreeMap<>();
        Message absolute = message(topic, "deliver at");
        absolute.setDeliverTimeMs(System.currentTimeMillis() + DELAY_MS);
        outcome.put("handle", describeHandle(producer.send(absolute), topic));
        Message recalled = message(topic, "recalled");
        recalled.setDelayTimeMs(DELAY_MS);
        SendResult toRecall = producer.send(recalled);
        String id = producer.recallMessage(topic, toRecall.getRecallHandle());
        outcome.put("recall names the message", id.equals(toRecall.getMsgId()));
        Message seconds = message(topic, "in seconds");
        seconds.setDelayTimeSec(DELAY_MS / 1_000);
        producer.send(seconds);
        Message millis = message(topic, "in milliseconds");
        millis.setDelayTimeMs(DELAY_MS);
        producer.send(millis);
        Message past = message(topic, "in the past");
        past.setDeliverTimeMs(1_000);
        outcome.put("handle in the past", String.valueOf(producer.send(past).getRecallHandle()));
        Message both = message(topic, "level too");
        both.setDelayTimeLevel(1);
        both.putUserProperty("mine", "yes");
        both.setDelayTimeMs(LATEST_MS * 2);
        outcome.put("handle with a level", String.valueOf(producer.send(both).getRecallHandle()));
        Message late = message(topic, "too late");
        late.setDelayTimeMs(LATEST_MS + DELAY_MS);
        outcome.put("too late", refusal(() -> producer.send(late)));
        outcome.put("recall of nonsense", refusal(() -> producer.recallMessage(topic, "nonsense")));
        outcome.put("recall with another topic", refusal(() -> producer.recallMessage("TBW102", toRecall.getRecallHandle())));
        outcome.put("recall of the past", refusal(() -> producer.recallMessage(topic, handle(toRecall, "1000"))));
        outcome.put("recall of what is no time", refusal(() -> producer.recallMessage(topic, handle(toRecall, "soon"))));
        outcome.put("recall too far ahead", refusal(() -> producer.recallMessage(topic,
                handle(toRecall, Long.toString(System.currentTimeMillis() + LATEST_MS * 2)))));
        inbox.awaitBodies(5);
        Message marker = message(topic, "marker");
        marker.setDelayTimeMs(1);
        producer.send(marker);
        inbox.awaitBodies(6);
        producer.shutdown();
        consumer.shutdown();
        for (MessageExt received : inbox.messages()) {
            outcome.put(Inbox.text(received), describe(received));
        }
        return outcome;
    }

    private static Message message(String topic, String body) {
        Message message = Texts.message(topic, body);
        message.setTags("late");
        message.setKeys("key");
        return message;
    }

    private static String describeHandle(SendResult sent, String topic) {
        String[] parts = parts(sent);
        boolean fits = parts.length == HANDLE_PARTS && parts[1].equals(topic) && parts[4].equals(sent.getMsgId());
        return parts[0] + " " + parts[2] + " " + parts[3].substring(parts[3].length() - 3) + " " + fits;
    }

    private static String[] parts(SendResult sent) {
        return new String(Base64.getUrlDecoder().decode(sent.getRecallHandle()), StandardCharsets.UTF_8).split(" ");
    }

    /** The handle of another time. */
    private static String handle(SendResult sent, String time) {
        String[] parts = parts(sent);
        parts[3] = time;
        return Base64.getUrlEncoder().encodeToString(String.join(" ", parts).getBytes(StandardCharsets.UTF_8));
    }

    /** Something that a broker or the client itself may refuse. */
    private interface Attempt {
        Object make() throws Exception;
    }

    private static String refusal(Attempt attempt) throws Exception {
        try {
            return "accepted: " + attempt.make();
        } catch (MQBrokerException refused) {
            return Integer.toString(refused.getResponseCode()) + " " + refused.getErrorMessage();
        } catch (MQClientException refused) {
            return "client " + refused.getResponseCode() + " " + refused.getErrorMessage();
        }
    }

    private static Map<String, Object> describe(MessageExt message) {
        Map<String, Object> outcome = new TreeMap<>();
        String due = message.getProperty("TIMER_OUT_MS");
        outcome.put("not before its time", due == null || message.getStoreTimestamp() > Long.parseLong(due));
        TreeSet<String> names = new TreeSet<>(message.getProperties().keySet());
        names.removeAll(List.of("CONSUME_START_TIME"));
        outcome.put("properties", names);
        outcome.put("reconsumed", message.getReconsumeTimes());
        return outcome;
    }
}
