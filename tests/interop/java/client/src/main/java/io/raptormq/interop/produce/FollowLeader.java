package io.raptormq.interop.produce;

import com.alibaba.fastjson.JSON;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * A producer and a consumer, whose broker may change its leader. Sends the numbers 0, 1, ... until a file exists and one more was acknowledged after that, each
 * again until it is acknowledged, and consumes them meanwhile. Prints "flowing" after the first message that was consumed, and a last line of JSON: how many were
 * acknowledged, how many of them were not consumed, the longest time (s) without an acknowledgement and without a consumed message, and how often each failure
 * occurred. Fails if the last message is not acknowledged in time. All settings are defaults, except for the interval at which the clients request routes.
 * Arguments: name servers, topic, the file, the interval (ms); the default of the client is 30000.
 */
public final class FollowLeader {
    private static final int PAUSE_MS = 20;
    private static final int LONGEST_FAILURE_CHARS = 160;
    private static final int LAST_LIMIT_S = 90;
    private static final double NANOS_PER_S = 1e9;
    private static final double PARTS_OF_S = 100.0;

    private final Set<String> consumed = ConcurrentHashMap.newKeySet();
    private final Set<String> acknowledged = new HashSet<>();
    private final Map<String, Integer> failures = new TreeMap<>();
    private long longestConsumerGap;
    private long lastConsumed;

    private FollowLeader() {}

    public static void main(String[] arguments) {
        int code = 1;
        try {
            new FollowLeader().run(arguments[0], arguments[1], Path.of(arguments[2]), Integer.parseInt(arguments[3]));
            code = 0;
        } catch (Exception error) {
            error.printStackTrace();
        }
        System.exit(code); // threads of the client would keep the process
    }

    private void run(String nameServers, String topic, Path stop, int routesMs) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("follow-leader-consumer");
        consumer.setNamesrvAddr(nameServers);
        consumer.setPollNameServerInterval(routesMs);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(this::note);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("follow-leader-producer");
        producer.setNamesrvAddr(nameServers);
        producer.setPollNameServerInterval(routesMs);
        producer.start();
        long longest = send(producer, topic, stop);
        producer.shutdown();
        long deadline = System.nanoTime() + LAST_LIMIT_S * (long) NANOS_PER_S;
        while (!consumed.containsAll(acknowledged) && System.nanoTime() < deadline) {
            Thread.sleep(PAUSE_MS);
        }
        consumer.shutdown();
        Set<String> missing = new HashSet<>(acknowledged);
        missing.removeAll(consumed);
        System.out.println(JSON.toJSONString(Map.of(
                "acknowledged", acknowledged.size(), "missing", missing.size(), "longest_gap_s", seconds(longest),
                "longest_consumer_gap_s", seconds(consumerGap()), "failures", failures)));
    }

    private long send(DefaultMQProducer producer, String topic, Path stop) throws InterruptedException {
        long last = System.nanoTime();
        long longest = 0;
        long deadline = Long.MAX_VALUE;
        boolean flowing = false;
        boolean ended = false;
        while (!ended) {
            if (deadline == Long.MAX_VALUE && Files.exists(stop)) {
                deadline = System.nanoTime() + LAST_LIMIT_S * (long) NANOS_PER_S;
            }
            String body = Integer.toString(acknowledged.size());
            try {
                Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
                if (producer.send(message).getSendStatus() == SendStatus.SEND_OK) {
                    acknowledged.add(body);
                    longest = Math.max(longest, System.nanoTime() - last);
                    last = System.nanoTime();
                    ended = deadline < Long.MAX_VALUE;
                }
            } catch (MQBrokerException | MQClientException | RemotingException error) {
                String text = String.valueOf(error.getMessage());
                failures.merge(text.substring(0, Math.min(text.length(), LONGEST_FAILURE_CHARS)), 1, Integer::sum);
            }
            if (!ended && System.nanoTime() > deadline) {
                throw new IllegalStateException("the last message was not acknowledged; failures: " + failures);
            }
            if (!flowing && !consumed.isEmpty()) {
                flowing = true;
                longest = 0;
                begin();
                System.out.println("flowing");
            }
            Thread.sleep(PAUSE_MS);
        }
        return longest;
    }

    private synchronized void begin() {
        longestConsumerGap = 0;
        lastConsumed = System.nanoTime();
    }

    private synchronized void note(MessageExt message) {
        consumed.add(new String(message.getBody(), StandardCharsets.UTF_8));
        longestConsumerGap = Math.max(longestConsumerGap, System.nanoTime() - lastConsumed);
        lastConsumed = System.nanoTime();
    }

    private synchronized long consumerGap() {
        return longestConsumerGap;
    }

    private static double seconds(long nanos) {
        return Math.round(nanos / NANOS_PER_S * PARTS_OF_S) / PARTS_OF_S;
    }
}
