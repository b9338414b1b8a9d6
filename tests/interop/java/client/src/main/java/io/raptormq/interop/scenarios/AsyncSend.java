package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/** Asynchronous sends, many under way at once. */
final class AsyncSend implements Scenario {
    private static final int COUNT = 500;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("async", 4);
        DefaultMQProducer producer = cluster.producer("async");
        CountDownLatch answered = new CountDownLatch(COUNT);
        AtomicInteger failed = new AtomicInteger();
        for (Message message : Texts.messages(topic, "async", 0, COUNT)) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    answered.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    failed.incrementAndGet();
                    answered.countDown();
                }
            });
        }
        boolean all = answered.await(60, TimeUnit.SECONDS);
        producer.shutdown();
        try (Reading reading = new Reading(cluster, "async_reader")) {
            Inbox inbox = new Inbox();
            inbox.add(reading.all(topic));
            boolean equal = inbox.bodies().equals(Texts.bodies("async", 0, COUNT));
            return Map.of("allAnswered", all, "failed", failed.get(), "stored", inbox.messages().size(), "equal", equal);
        }
    }
}
