package io.raptormq.interop.produce;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends single messages "automatic 0", "automatic 1", ... with autoBatch, then prints one line: "answered " and how many were stored.
 * Arguments: name servers, topic, number of messages.
 */
public final class SendAutomatically {
    private static final int LONGEST_SECONDS = 60;

    private SendAutomatically() {}

    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[2]);
        AtomicInteger stored = new AtomicInteger();
        CountDownLatch missing = new CountDownLatch(count);
        DefaultMQProducer producer = new DefaultMQProducer("send-automatically");
        producer.setNamesrvAddr(arguments[0]);
        producer.setAutoBatch(true);
        producer.setSendMsgTimeout(LONGEST_SECONDS * 1_000);
        producer.start();
        for (int number = 0; number < count; number++) {
            byte[] body = ("automatic " + number).getBytes(StandardCharsets.UTF_8);
            producer.send(new Message(arguments[1], body), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    stored.incrementAndGet();
                    missing.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    System.err.println(error);
                    missing.countDown();
                }
            });
        }
        boolean complete = missing.await(LONGEST_SECONDS, TimeUnit.SECONDS);
        System.out.println("answered " + stored.get());
        producer.shutdown();
        System.exit(complete ? 0 : 1);
    }
}
