package io.raptormq.interop.golden;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;

/** Push consumers: one concurrent that sends a message back, one orderly that locks its queues. */
final class PushPart {
    private static final int PLAIN_COUNT = 7;
    private static final long DEADLINE_SECONDS = 60;

    private final String nameServer;

    PushPart(String nameServer) {
        this.nameServer = nameServer;
    }

    void run(AdminPart admin) throws Exception {
        CountDownLatch consumed = new CountDownLatch(PLAIN_COUNT);
        DefaultMQPushConsumer concurrent = consumer("golden_pusher", "A || B || C");
        concurrent.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            boolean sendBack = messages.get(0).getReconsumeTimes() == 0 && consumed.getCount() == PLAIN_COUNT - 1;
            messages.forEach(message -> consumed.countDown());
            return sendBack ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        CountDownLatch ordered = new CountDownLatch(1);
        DefaultMQPushConsumer orderly = consumer("golden_orderly", "*");
        orderly.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            ordered.countDown();
            return ConsumeOrderlyStatus.SUCCESS;
        });
        concurrent.start();
        orderly.start();
        await(ordered, "orderly");
        await(consumed, "concurrent");
        admin.lookAtConsumer("golden_pusher");
        concurrent.shutdown();
        orderly.shutdown();
    }

    private DefaultMQPushConsumer consumer(String group, String expression) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        GoldenSession.configure(consumer, nameServer, group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(GoldenSession.TOPIC, expression);
        return consumer;
    }

    private static void await(CountDownLatch latch, String what) throws InterruptedException {
        if (!latch.await(DEADLINE_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("the " + what + " consumer still misses " + latch.getCount() + " messages");
        }
    }
}
