package io.raptormq.interop.scenarios;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Topics of queue.type=BatchCQ: {@code send(list)} and single messages are read one by one; what is found, filtered and retried. */
@SuppressWarnings("deprecation") // the lite pull consumer hides the single pull that is wanted here
final class BatchQueue implements Scenario {
    private static final int SEEK = 4;
    private static final int AUTOMATIC = 60;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("batch_queue", 1, "BatchCQ");
        Map<String, Object> outcome = new TreeMap<>();
        DefaultMQProducer producer = cluster.producer("batch_queue");
        List<SendResult> results = new ArrayList<>();
        results.add(producer.send(Texts.messages(topic, "m", 0, 3)));
        results.add(producer.send(Texts.messages(topic, "m", 3, 6)));
        results.add(producer.send(Texts.messages(topic, "m", 6, 7).get(0)));
        awaitNextMillisecond(); // messages of one store time are found by it from the first on
        results.add(producer.send(tagged(topic)));
        producer.shutdown();
        outcome.put("offsets of sends", results.stream().map(SendResult::getQueueOffset).collect(Collectors.toList()));
        outcome.put("ids of sends", results.stream().map(each -> each.getOffsetMsgId().split(",").length).collect(Collectors.toList()));
        try (Reading reading = new Reading(cluster, "batch_queue_reader")) {
            MessageQueue queue = reading.queues(topic).get(0);
            List<MessageExt> messages = reading.all(topic);
            outcome.put("messages", places(messages));
            outcome.put("unique keys", messages.stream().map(MessageExt::getMsgId).distinct().count());
            outcome.put("end", reading.consumer().maxOffset(queue));
            outcome.put("first from the middle", places(reading.consumer().pull(queue, "*", SEEK, 1).getMsgFoundList()).get(0));
            outcome.put("with the tag", places(reading.consumer().pull(queue, "red", 7, 32).getMsgFoundList()));
            outcome.put("found by id", text(cluster, topic, messages.get(SEEK).getMsgId()));
            outcome.put("offset of the last time", reading.consumer().searchOffset(queue, last(messages).getStoreTimestamp()));
        }
        outcome.put("retried", retried(cluster, topic));
        outcome.put("automatic", automatic(cluster, "BatchCQ"));
        outcome.put("automatic, SimpleCQ", automatic(cluster, "SimpleCQ"));
        return outcome;
    }

    private static void awaitNextMillisecond() {
        for (long now = System.currentTimeMillis(); System.currentTimeMillis() == now;) {
            Thread.onSpinWait();
        }
    }

    private static List<Message> tagged(String topic) {
        List<Message> messages = Texts.messages(topic, "t", 0, 2);
        messages.forEach(each -> each.setTags("red"));
        return messages;
    }

    private static List<String> places(List<MessageExt> messages) {
        if (messages == null) {
            return List.of();
        }
        return messages.stream().map(each -> each.getQueueOffset() + " " + Inbox.text(each)).collect(Collectors.toList());
    }

    private static MessageExt last(List<MessageExt> messages) {
        return messages.get(messages.size() - 1);
    }

    private static String text(Cluster cluster, String topic, String id) throws Exception {
        try {
            return Inbox.text(cluster.admin().viewMessage(topic, id));
        } catch (MQClientException missing) {
            return "none";
        }
    }

    /** The bodies that come again when one of a batch fails once. */
    private static TreeSet<String> retried(Cluster cluster, String topic) throws Exception {
        Inbox again = new Inbox();
        Inbox first = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("batch_queue_retry");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean isRetry = messages.get(0).getReconsumeTimes() > 0 || messages.get(0).getProperty("RETRY_TOPIC") != null;
            (isRetry ? again : first).add(messages);
            context.setDelayLevelWhenNextConsume(1);
            boolean fails = !isRetry && Inbox.text(messages.get(0)).equals("m-4");
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        first.awaitBodies(9);
        again.awaitBodies(1);
        consumer.shutdown();
        return new TreeSet<>(again.bodies());
    }

    /** Single messages of a producer with autoBatch: how many are answered, and what is read. */
    private static Map<String, Object> automatic(Cluster cluster, String type) throws Exception {
        String topic = cluster.createTopic("auto_batch_" + type, 1, type);
        DefaultMQProducer producer = cluster.unstartedProducer("auto_batch_" + type);
        producer.setAutoBatch(true);
        producer.start();
        CountDownLatch answers = new CountDownLatch(AUTOMATIC);
        TreeSet<String> errors = new TreeSet<>();
        for (Message message : Texts.messages(topic, "a", 0, AUTOMATIC)) {
            message.setTags("auto");
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answers.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    errors.add(String.valueOf(error.getMessage()));
                    answers.countDown();
                }
            });
        }
        boolean answered = answers.await(60, TimeUnit.SECONDS);
        producer.shutdown();
        try (Reading reading = new Reading(cluster, "auto_batch_reader_" + type)) {
            MessageQueue queue = reading.queues(topic).get(0);
            List<MessageExt> messages = reading.all(topic);
            long inPlace = IntStream.range(0, messages.size()).filter(i -> messages.get(i).getQueueOffset() == i).count();
            return new TreeMap<>(Map.of(
                    "answered", answered,
                    "errors", errors,
                    "in place", inPlace,
                    "bodies", messages.stream().map(Inbox::text).distinct().count(),
                    "with the tag", reading.consumer().pull(queue, "auto", 0, 1).getMsgFoundList().size() > 0));
        }
    }
}
