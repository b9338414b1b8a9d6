package io.raptormq.interop.old;

import com.alibaba.fastjson.JSON;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The client of RocketMQ 4 reads what a client of RocketMQ 5 sends in batches, and sends what that one reads ({@code scenarios.OldPeer}, which makes
 * the topics). It does not know inner batches: the broker has to take them apart. Prints one line for each queue type: "outcome " and JSON {scenario,
 * seconds, outcome or error}. Arguments: address of the name server; prefix; "all" or queue types.
 */
@SuppressWarnings("deprecation") // the lite pull consumer hides the single pull that is wanted here
public final class OldClient {
    /** What comes from the other side, in the order of its offsets: automatic batches, a list, one message. */
    private static final int AUTOMATIC = 30;
    private static final int LISTED = 5;
    private static final int COUNT = AUTOMATIC + LISTED + 1;
    private static final String LAST = "last";
    private static final String FAILING = "auto-7";
    private static final int LONGEST_SECONDS = 120;
    private static final int POLL_MILLIS = 100;
    private static final int RETRY_AT_ONCE = 1;

    private final String nameServer;
    private final String type;

    private OldClient(String nameServer, String type) {
        this.nameServer = nameServer;
        this.type = type;
    }

    public static void main(String[] arguments) throws Exception {
        List<String> types = List.of(arguments).subList(2, arguments.length);
        for (String type : types.equals(List.of("all")) ? List.of("SimpleCQ", "BatchCQ") : types) {
            long begin = System.nanoTime();
            Map<String, Object> line = new TreeMap<>(Map.of("scenario", type));
            try {
                line.put("outcome", new OldClient(arguments[0], type).play());
            } catch (Exception error) {
                StringWriter trace = new StringWriter();
                error.printStackTrace(new PrintWriter(trace));
                line.put("error", trace.toString());
            }
            line.put("seconds", (System.nanoTime() - begin) / 1_000_000 / 1e3);
            System.out.println("outcome " + JSON.toJSONString(line));
        }
        System.exit(0);
    }

    private Map<String, Object> play() throws Exception {
        Map<String, Object> outcome = new TreeMap<>();
        produce("json_to_new_" + type, outcome);
        pull("json_to_old_" + type, outcome);
        consume("json_to_old_" + type, outcome);
        return outcome;
    }

    private void produce(String topic, Map<String, Object> outcome) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("old_client_" + type);
        configure(producer, "produce");
        producer.setSendMsgTimeout(10_000);
        producer.start();
        MessageQueue queue = awaitQueue(() -> producer.fetchPublishMessageQueues(topic));
        List<SendResult> results = new ArrayList<>();
        for (Message message : messages(topic, "single", 0, 3)) {
            results.add(producer.send(message, queue));
        }
        results.add(producer.send(messages(topic, "list", 0, 5), queue));
        results.add(producer.send(messages(topic, "list", 5, 6), queue));
        results.add(producer.send(messages(topic, "single", 3, 4).get(0), queue));
        producer.shutdown();
        outcome.put("sent", describe(results, each -> each.getSendStatus() + " " + each.getQueueOffset() + ", ids " + each.getMsgId().split(",").length));
    }

    /** Consumes until the last message has come, and the one that fails once has come again if it came at all. */
    private void consume(String topic, Map<String, Object> outcome) throws Exception {
        List<MessageExt> firsts = new ArrayList<>();
        List<MessageExt> retried = new ArrayList<>();
        CountDownLatch ended = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("old_client_" + type);
        configure(consumer, "consume");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(RETRY_AT_ONCE);
            MessageExt message = messages.get(0);
            (message.getReconsumeTimes() == 0 ? firsts : retried).add(message);
            boolean isOwed = firsts.stream().anyMatch(each -> text(each).equals(FAILING)) && retried.isEmpty();
            if (firsts.stream().anyMatch(each -> text(each).contains(LAST)) && !isOwed) {
                ended.countDown();
            }
            boolean fails = message.getReconsumeTimes() == 0 && text(message).equals(FAILING);
            return fails ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean complete = ended.await(LONGEST_SECONDS, TimeUnit.SECONDS);
        consumer.shutdown();
        outcome.put("consumed all", complete);
        outcome.put("consumed", firsts.stream().filter(each -> isExpected(text(each))).count());
        outcome.put("consumed, different ones", firsts.stream().map(OldClient::text).filter(OldClient::isExpected).distinct().count());
        outcome.put("consumed, as sent", firsts.stream().filter(OldClient::isAsSent).count());
        outcome.put("consumed, with its id", firsts.stream().filter(OldClient::hasItsId).count());
        outcome.put("consumed again", describe(retried, OldClient::text));
    }

    private void pull(String topic, Map<String, Object> outcome) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("old_client_pulls_" + type);
        configure(consumer, "pull");
        consumer.start();
        MessageQueue queue = awaitQueue(() -> consumer.fetchSubscribeMessageQueues(topic));
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LONGEST_SECONDS); consumer.maxOffset(queue) < COUNT && System.nanoTime() < end;) {
            Thread.sleep(POLL_MILLIS);
        }
        outcome.put("bounds", consumer.minOffset(queue) + ".." + consumer.maxOffset(queue));
        List<MessageExt> all = new ArrayList<>();
        int misplaced = 0;
        for (int offset = 0; offset < COUNT; offset++) {
            List<MessageExt> found = found(consumer.pull(queue, "*", offset, 32));
            MessageExt first = found.isEmpty() ? null : found.get(0);
            misplaced += first != null && first.getQueueOffset() == offset && isExpected(text(first)) ? 0 : 1;
            all.addAll(first == null ? List.of() : List.of(first));
        }
        outcome.put("pulled, not from exactly there", misplaced);
        outcome.put("pulled, in order", all.stream().map(OldClient::text).collect(Collectors.toList()).equals(expected()));
        outcome.put("pulled, as sent", all.stream().filter(OldClient::isAsSent).count());
        outcome.put("pulled, with its id", all.stream().filter(OldClient::hasItsId).count());
        outcome.put("pulled, unique ids", all.stream().map(MessageExt::getMsgId).distinct().count());
        outcome.put("pulled, at most two", describe(found(consumer.pull(queue, "*", 7, 2)), OldClient::place));
        outcome.put("pulled, by tag", describe(found(consumer.pull(queue, "list", 0, 32)), OldClient::place));
        outcome.put("pulled, by tag, in a batch", describe(found(consumer.pull(queue, "list", AUTOMATIC + 2, 32)), OldClient::place));
        outcome.put("pulled, by tag of nobody", describe(found(consumer.pull(queue, "nobody", 0, 32)), OldClient::place));
        outcome.put("pulled, at the end", consumer.pull(queue, "*", COUNT, 32).getPullStatus());
        outcome.put("pulled, behind the end", consumer.pull(queue, "*", COUNT + 1, 32).getPullStatus());
        consumer.shutdown();
    }

    private static List<MessageExt> found(PullResult pulled) {
        return pulled.getPullStatus() == PullStatus.FOUND ? pulled.getMsgFoundList() : List.of();
    }

    private static List<String> expected() {
        List<String> bodies = new ArrayList<>();
        IntStream.range(0, AUTOMATIC).forEach(i -> bodies.add("auto-" + i));
        IntStream.range(0, LISTED).forEach(i -> bodies.add("list-" + i));
        bodies.add(LAST);
        return bodies;
    }

    private static boolean isExpected(String body) {
        return expected().contains(body);
    }

    /** Whether place, tag, key and properties are those of the message with this body. */
    private static boolean isAsSent(MessageExt message) {
        String body = text(message);
        int place = expected().indexOf(body);
        return place == message.getQueueOffset()
                && body.split("-")[0].equals(message.getTags())
                && List.of(String.valueOf(message.getKeys()).split(" ")).contains("key-" + body)
                && body.equals(message.getUserProperty("name"));
    }

    /** Whether the unique id is the one that the producer was told. */
    private static boolean hasItsId(MessageExt message) {
        return String.valueOf(message.getUserProperty("told")).equals(message.getMsgId());
    }

    private static String place(MessageExt message) {
        return message.getQueueOffset() + " " + (isExpected(text(message)) ? text(message) : "no message");
    }

    private static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    private static <T> List<String> describe(List<T> items, Function<T, String> description) {
        return items.stream().map(description).collect(Collectors.toList());
    }

    private static List<Message> messages(String topic, String name, int from, int to) {
        return IntStream.range(from, to).mapToObj(i -> name + "-" + i)
                .map(body -> new Message(topic, name, "key-" + body, body.getBytes(StandardCharsets.UTF_8))).collect(Collectors.toList());
    }

    private interface Question {
        Iterable<MessageQueue> answer() throws MQClientException;
    }

    /** The one queue of a topic, as soon as the other side has made it. */
    private static MessageQueue awaitQueue(Question question) throws Exception {
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LONGEST_SECONDS); System.nanoTime() < end;) {
            try {
                return question.answer().iterator().next();
            } catch (MQClientException notYet) {
                Thread.sleep(POLL_MILLIS);
            }
        }
        throw new IllegalStateException("the topic did not come");
    }

    private void configure(ClientConfig client, String name) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName("old_" + name + "_" + type);
        client.setVipChannelEnabled(false);
        client.setHeartbeatBrokerInterval(2_000);
        client.setPollNameServerInterval(2_000);
    }
}
