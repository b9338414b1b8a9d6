package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AckCallback;
import org.apache.rocketmq.client.consumer.AckResult;
import org.apache.rocketmq.client.consumer.AckStatus;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PopCallback;
import org.apache.rocketmq.client.consumer.PopResult;
import org.apache.rocketmq.client.consumer.PopStatus;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.header.AckMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ChangeInvisibleTimeRequestHeader;
import org.apache.rocketmq.remoting.protocol.header.ExtraInfoUtil;
import org.apache.rocketmq.remoting.protocol.header.PopMessageRequestHeader;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** Messages popped one by one: by a push consumer that leaves rebalancing to the broker, and by single requests. */
@SuppressWarnings("deprecation") // nothing else leads to the requests themselves
final class PopConsumption implements Scenario {
    private static final int COUNT = 30;
    private static final long SECOND = 1_000;

    /** Three requests end in that time, also on a busy machine. */
    private static final long INVISIBLE_MS = 5_000;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("pop", 2);
        String broker = cluster.admin().examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next().selectBrokerAddr();
        DefaultMQProducer producer = cluster.producer("pop");
        for (Message message : Texts.messages(topic, "popped", 0, COUNT)) {
            producer.send(message);
        }
        Map<String, Object> outcome = new TreeMap<>();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("pop", topic, "*", inbox);
        consumer.setClientRebalance(false);
        createGroup(cluster, broker, consumer.getConsumerGroup());
        cluster.admin().setMessageRequestMode(broker, topic, consumer.getConsumerGroup(), MessageRequestMode.POP, 0, 5 * SECOND);
        consumer.start();
        inbox.awaitBodies(COUNT);
        outcome.put("push consumer", inbox.bodies().size());
        outcome.put("handles of the push consumer",
                inbox.messages().stream().allMatch(message -> message.getProperty(MessageConst.PROPERTY_POP_CK) != null));
        String group = cluster.name("pop_single");
        createGroup(cluster, broker, group);
        MQClientAPIImpl api = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getMQClientAPIImpl();
        singleRequests(api, broker, topic, group, outcome);
        producer.shutdown();
        consumer.shutdown();
        return outcome;
    }

    static void createGroup(Cluster cluster, String broker, String group) throws Exception {
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        cluster.admin().createAndUpdateSubscriptionGroupConfig(broker, config);
    }

    private static void singleRequests(MQClientAPIImpl api, String broker, String topic, String group, Map<String, Object> outcome)
            throws Exception {
        PopResult popped = pop(api, broker, topic, group, 0, 3, INVISIBLE_MS);
        outcome.put("three of a queue", popped.getPopStatus() + " " + popped.getMsgFoundList().size() + ", rest " + popped.getRestNum());
        MessageExt kept = popped.getMsgFoundList().get(2);
        outcome.put("parts of a handle", ExtraInfoUtil.split(kept.getProperty(MessageConst.PROPERTY_POP_CK)).length);
        outcome.put("reconsume times", kept.getReconsumeTimes());
        outcome.put("ack", ack(api, broker, topic, group, popped.getMsgFoundList().get(0)).getStatus());
        AckResult longer = change(api, broker, topic, group, popped.getMsgFoundList().get(1), 60 * SECOND);
        outcome.put("invisible for longer", longer.getStatus());
        PopResult others = pop(api, broker, topic, group, 0, 32, 60 * SECOND);
        outcome.put("the others", others.getPopStatus() + " " + others.getMsgFoundList().size() + ", rest " + others.getRestNum());
        PopResult again = pop(api, broker, topic, group, 0, 32, 60 * SECOND);
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60); again.getPopStatus() != PopStatus.FOUND && System.nanoTime() < end;) {
            again = pop(api, broker, topic, group, 0, 32, 60 * SECOND);
        }
        MessageExt back = again.getMsgFoundList().get(0);
        outcome.put("back again", again.getMsgFoundList().size() + " message, the one kept: " + Inbox.text(back).equals(Inbox.text(kept)));
        outcome.put("back again as", back.getTopic().equals(topic) + ", reconsume times " + back.getReconsumeTimes() + ", first popped "
                + (back.getProperty(MessageConst.PROPERTY_FIRST_POP_TIME) != null));
        outcome.put("ack of what came back", ack(api, broker, topic, group, back).getStatus());
    }

    static PopResult pop(MQClientAPIImpl api, String broker, String topic, String group, int queue, int count, long invisible)
            throws Exception {
        PopMessageRequestHeader header = new PopMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(topic);
        header.setQueueId(queue);
        header.setMaxMsgNums(count);
        header.setInvisibleTime(invisible);
        header.setPollTime(SECOND);
        header.setBornTime(System.currentTimeMillis());
        header.setInitMode(0);
        CompletableFuture<PopResult> future = new CompletableFuture<>();
        api.popMessageAsync("broker-a", broker, header, 10 * SECOND, new PopCallback() {
            @Override
            public void onSuccess(PopResult result) {
                future.complete(result);
            }

            @Override
            public void onException(Throwable error) {
                future.completeExceptionally(error);
            }
        });
        return future.get(10, TimeUnit.SECONDS);
    }

    private static AckResult ack(MQClientAPIImpl api, String broker, String topic, String group, MessageExt message) throws Exception {
        String[] handle = ExtraInfoUtil.split(message.getProperty(MessageConst.PROPERTY_POP_CK));
        AckMessageRequestHeader header = new AckMessageRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(ExtraInfoUtil.getRealTopic(handle, topic, group));
        header.setQueueId(ExtraInfoUtil.getQueueId(handle));
        header.setOffset(ExtraInfoUtil.getQueueOffset(handle));
        header.setExtraInfo(message.getProperty(MessageConst.PROPERTY_POP_CK));
        Answer answer = new Answer();
        api.ackMessageAsync(broker, 10 * SECOND, answer, header);
        return answer.future.get(10, TimeUnit.SECONDS);
    }

    private static AckResult change(MQClientAPIImpl api, String broker, String topic, String group, MessageExt message, long invisible)
            throws Exception {
        String[] handle = ExtraInfoUtil.split(message.getProperty(MessageConst.PROPERTY_POP_CK));
        ChangeInvisibleTimeRequestHeader header = new ChangeInvisibleTimeRequestHeader();
        header.setConsumerGroup(group);
        header.setTopic(ExtraInfoUtil.getRealTopic(handle, topic, group));
        header.setQueueId(ExtraInfoUtil.getQueueId(handle));
        header.setOffset(ExtraInfoUtil.getQueueOffset(handle));
        header.setExtraInfo(message.getProperty(MessageConst.PROPERTY_POP_CK));
        header.setInvisibleTime(invisible);
        Answer answer = new Answer();
        api.changeInvisibleTimeAsync("broker-a", broker, header, 10 * SECOND, answer);
        return answer.future.get(10, TimeUnit.SECONDS);
    }

    private static final class Answer implements AckCallback {
        private final CompletableFuture<AckResult> future = new CompletableFuture<>();

        @Override
        public void onSuccess(AckResult result) {
            if (result.getStatus() == null) {
                result.setStatus(AckStatus.NO_EXIST);
            }
            future.complete(result);
        }

        @Override
        public void onException(Throwable error) {
            future.completeExceptionally(error);
        }
    }
}
