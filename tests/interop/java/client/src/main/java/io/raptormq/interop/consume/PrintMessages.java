package io.raptormq.interop.consume;

import com.alibaba.fastjson.JSON;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentSkipListMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Consumes a topic with one queue until so many messages are there, then prints one line: "messages " and JSON [[queue offset, unique id, body], ...],
 * in the order of the offsets. Arguments: name servers, topic, number of messages.
 */
public final class PrintMessages {
    private static final int LONGEST_SECONDS = 60;

    private PrintMessages() {}

    public static void main(String[] arguments) throws MQClientException, InterruptedException {
        Map<Long, List<Object>> found = new ConcurrentSkipListMap<>();
        CountDownLatch missing = new CountDownLatch(Integer.parseInt(arguments[2]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("print-messages");
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(arguments[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                if (found.put(message.getQueueOffset(), List.of(message.getQueueOffset(), message.getMsgId(), body)) == null) {
                    missing.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        boolean complete = missing.await(LONGEST_SECONDS, TimeUnit.SECONDS);
        System.out.println("messages " + JSON.toJSONString(found.values()));
        consumer.shutdown();
        System.exit(complete ? 0 : 1);
    }
}
