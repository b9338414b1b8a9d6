package io.raptormq.interop.load;

import com.alibaba.fastjson.JSON;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends a backlog, then consumes it with one push consumer with its default settings.
 *
 * <p>Arguments: address of the name server; number of messages. It prints "measuring backlog" before the consumer starts, "measured backlog"
 * when the last message has come, and "result " with JSON; the seconds count from the first message to the last.
 */
public final class BacklogLoad {
    private static final int LIST = 64;
    private static final int SENDERS = 4;
    private static final long LONGEST_MINUTES = 10;

    private BacklogLoad() {}

    public static void main(String[] arguments) {
        try {
            long count = Long.parseLong(arguments[1]);
            ClientLoad.createTopic(arguments[0]);
            send(arguments[0], count);
            System.out.println("measuring backlog");
            double seconds = consume(arguments[0], count);
            System.out.println("measured backlog");
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("messages", count);
            result.put("seconds", seconds);
            System.out.println("result " + JSON.toJSONString(result));
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // the clients' threads would keep the process alive
        }
    }

    private static void send(String nameServer, long count) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("load");
        producer.setNamesrvAddr(nameServer);
        producer.start();
        byte[] body = new byte[ClientLoad.BODY_BYTES];
        new Random(1).nextBytes(body);
        AtomicLong left = new AtomicLong(count);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < SENDERS; i++) {
            Thread thread = new Thread(() -> sendLists(producer, body, left));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        producer.shutdown();
    }

    private static void sendLists(DefaultMQProducer producer, byte[] body, AtomicLong left) {
        while (true) {
            long mine = Math.min(LIST, left.getAndAdd(-LIST));
            if (mine <= 0) {
                return;
            }
            List<Message> list = new ArrayList<>(LIST);
            for (int i = 0; i < mine; i++) {
                list.add(new Message(ClientLoad.TOPIC, body));
            }
            for (boolean sent = false; !sent; ) {
                try {
                    producer.send(list);
                    sent = true;
                } catch (Exception busy) {
                    System.err.println(busy.getMessage());
                }
            }
        }
    }

    private static double consume(String nameServer, long count) throws Exception {
        AtomicLong seen = new AtomicLong();
        AtomicLong begin = new AtomicLong();
        AtomicLong end = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("backlog");
        consumer.setNamesrvAddr(nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(ClientLoad.TOPIC, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            begin.compareAndSet(0, System.nanoTime());
            if (seen.addAndGet(messages.size()) >= count && end.compareAndSet(0, System.nanoTime())) {
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!done.await(LONGEST_MINUTES, TimeUnit.MINUTES)) {
            throw new IllegalStateException("only " + seen.get() + " of " + count + " messages came");
        }
        consumer.shutdown();
        return (end.get() - begin.get()) / 1e9;
    }
}
