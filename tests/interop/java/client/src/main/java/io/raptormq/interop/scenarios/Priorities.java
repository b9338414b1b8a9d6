package io.raptormq.interop.scenarios;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;

/** Messages with priorities (RIP-80, RocketMQ 5.4): the queues that they go to, and the order in which they are popped. */
@SuppressWarnings("deprecation") // nothing else leads to the requests themselves
final class Priorities implements Scenario {
    private static final int QUEUES = 4;

    /** The constant is not in the client that this is compiled with. */
    private static final String PRIORITY = "_SYS_MSG_PRIORITY_";

    private static final long INVISIBLE_MS = 60_000;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String broker = cluster.brokerAddress();
        String topic = cluster.name("priorities");
        TopicConfig config = new TopicConfig(topic, QUEUES, QUEUES);
        config.setAttributes(Map.of("+message.type", "PRIORITY"));
        cluster.admin().createAndUpdateTopicConfig(broker, config);
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("attributes", cluster.admin().examineTopicConfig(broker, topic).getAttributes().toString());
        DefaultMQProducer producer = cluster.producer("priorities");
        List<Integer> queues = new ArrayList<>();
        for (String priority : List.of("1", "3", "0", "2", "9")) {
            Message message = new Message(topic, priority.getBytes());
            MessageAccessor.putProperty(message, PRIORITY, priority);
            queues.add(producer.send(message).getMessageQueue().getQueueId());
        }
        outcome.put("queues of the priorities 1, 3, 0, 2, 9", queues.toString());
        DefaultMQPushConsumer consumer = cluster.pushConsumer("priorities", cluster.createTopic("priorities_others", 1), "*", new Inbox());
        consumer.start();
        MQClientAPIImpl api = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getMQClientAPIImpl();
        String group = cluster.name("priorities_pop");
        PopConsumption.createGroup(cluster, broker, group);
        List<String> order = new ArrayList<>();
        for (int count : List.of(1, 1, 32)) {
            PopResult popped = PopConsumption.pop(api, broker, topic, group, -1, count, INVISIBLE_MS);
            popped.getMsgFoundList().forEach(message -> order.add(new String(message.getBody())));
        }
        outcome.put("order of pops", order.toString());
        ordered(producer, api, broker, topic, group, outcome);
        producer.shutdown();
        consumer.shutdown();
        return outcome;
    }

    private static void ordered(DefaultMQProducer producer, MQClientAPIImpl api, String broker, String topic, String group,
            Map<String, Object> outcome) throws Exception {
        Message message = new Message(topic, "ordered".getBytes());
        MessageAccessor.putProperty(message, PRIORITY, "3");
        MessageAccessor.putProperty(message, MessageConst.PROPERTY_SHARDING_KEY, "key");
        producer.send(message, (found, sent, argument) -> found.get(1), null);
        MessageExt popped = PopConsumption.pop(api, broker, topic, group, -1, 1, INVISIBLE_MS).getMsgFoundList().get(0);
        outcome.put("of an ordered message", "queue " + popped.getQueueId() + ", priority " + popped.getProperty(PRIORITY));
    }
}
