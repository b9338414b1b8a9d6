package io.raptormq.interop.rebalance;

import com.alibaba.fastjson.JSON;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * A member of a group until it is stopped. Arguments: name servers, group, topic, strategy. Whenever its queues change, a line: "queues " and
 * JSON [[broker, queue], ...].
 */
public final class Member {
    private Member() {}

    @SuppressWarnings("deprecation") // there is no other way to the queues of a consumer
    public static void main(String[] arguments) throws MQClientException, InterruptedException {
        String topic = arguments[2];
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(arguments[1]);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setAllocateMessageQueueStrategy(strategy(arguments[3]));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        Set<String> before = null;
        while (true) {
            Set<String> now = new TreeSet<>();
            for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
                if (queue.getTopic().equals(topic)) {
                    now.add(JSON.toJSONString(List.of(queue.getBrokerName(), queue.getQueueId())));
                }
            }
            if (!now.equals(before)) {
                System.out.println("queues [" + String.join(",", now) + "]");
                before = now;
            }
            TimeUnit.MILLISECONDS.sleep(100);
        }
    }

    private static AllocateMessageQueueStrategy strategy(String name) {
        switch (name) {
            case "AVG":
                return new AllocateMessageQueueAveragely();
            case "AVG_BY_CIRCLE":
                return new AllocateMessageQueueAveragelyByCircle();
            case "CONSISTENT_HASH":
                return new AllocateMessageQueueConsistentHash();
            default:
                throw new IllegalArgumentException(name);
        }
    }
}
