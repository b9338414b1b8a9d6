package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.body.QueueTimeSpan;
import org.apache.rocketmq.remoting.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What dashboards ask by the admin library and no mqadmin command does: time spans, subscriptions, copies of progress, prohibitions. */
@SuppressWarnings("deprecation") // offsets of a group: no other client shows them
final class AdminCalls implements Scenario {
    private static final int EACH = 5;
    private static final String HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC";

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("admin_calls", 2);
        String other = cluster.createTopic("admin_calls_other", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("admin_calls", topic, "one || two", inbox);
        consumer.start();
        String group = consumer.getConsumerGroup();
        DefaultMQProducer producer = cluster.producer("admin_calls");
        Reading reading = new Reading(cluster, "admin_calls_copy");
        List<MessageQueue> queues = reading.queues(topic);
        for (int i = 0; i < 2 * EACH; i++) {
            Message message = Texts.message(topic, "message-" + i);
            message.setTags("one");
            producer.send(message, queues.get(i % 2));
        }
        producer.shutdown();
        inbox.awaitBodies(2 * EACH);
        commit(consumer, queues);
        DefaultMQAdminExt admin = cluster.admin();
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("topics", admin.queryTopicsByConsumer(group).getTopicList().contains(topic));
        outcome.put("topics of nobody", AnswerCode.of(() -> admin.queryTopicsByConsumer(cluster.name("nobody"))));
        outcome.put("subscription", text(admin.querySubscription(group, topic)));
        outcome.put("subscription to another topic", text(admin.querySubscription(group, other)));
        outcome.put("subscription to no topic", AnswerCode.of(() -> admin.querySubscription(group, cluster.name("missing"))));
        outcome.put("time spans", spans(admin.queryConsumeTimeSpan(topic, group)));
        outcome.put("time spans of no topic", AnswerCode.of(() -> admin.queryConsumeTimeSpan(cluster.name("missing"), group)));
        copies(cluster, reading, queues, group, outcome);
        prohibitions(cluster, group, topic, outcome);
        consumer.shutdown();
        reading.close();
        outcome.put("units", api(cluster).getUnitTopicList(true, 5_000).getTopicList().size());
        outcome.put("units subscribed", api(cluster).getHasUnitSubTopicList(true, 5_000).getTopicList().size());
        outcome.put("units subscribed, others", api(cluster).getHasUnitSubUnUnitTopicList(true, 5_000).getTopicList().size());
        resumed(cluster, topic, outcome);
        return outcome;
    }

    private static void copies(Cluster cluster, Reading reading, List<MessageQueue> queues, String group, Map<String, Object> outcome)
            throws Exception {
        DefaultMQPullConsumer copy = reading.consumer();
        cluster.admin().cloneGroupOffset(group, copy.getConsumerGroup(), queues.get(0).getTopic(), false);
        outcome.put("copy", copy.fetchConsumeOffset(queues.get(0), true) + " and " + copy.fetchConsumeOffset(queues.get(1), true));
        outcome.put("copy of nobody", AnswerCode.of(
                () -> cluster.admin().cloneGroupOffset(cluster.name("nobody"), copy.getConsumerGroup(), queues.get(0).getTopic(), true)));
    }

    private static void prohibitions(Cluster cluster, String group, String topic, Map<String, Object> outcome) throws Exception {
        String broker = cluster.admin().examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next().selectBrokerAddr();
        outcome.put("may read", cluster.admin().updateAndGetGroupReadForbidden(broker, group, topic, null).getReadable());
        outcome.put("forbidden", cluster.admin().updateAndGetGroupReadForbidden(broker, group, topic, false).getReadable());
        outcome.put("still forbidden", cluster.admin().updateAndGetGroupReadForbidden(broker, group, topic, null).getReadable());
        outcome.put("allowed", cluster.admin().updateAndGetGroupReadForbidden(broker, group, topic, true).getReadable());
    }

    /** An open transaction is taken up again; the producer decides when it is asked. */
    private static void resumed(Cluster cluster, String topic, Map<String, Object> outcome) throws Exception {
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("admin_calls_resumed", topic, "resumed", inbox);
        consumer.start();
        TransactionMQProducer producer = new TransactionMQProducer(cluster.name("admin_calls_resumed"));
        cluster.configure(producer);
        producer.setTransactionListener(new AskedLater());
        producer.start();
        Message message = Texts.message(topic, "resumed");
        message.setTags("resumed");
        SendResult half = producer.sendMessageInTransaction(message, null);
        outcome.put("resumed", resumed(cluster.admin(), half.getMsgId()));
        inbox.awaitBodies(1);
        outcome.put("committed after that", inbox.bodies());
        producer.shutdown();
        consumer.shutdown();
    }

    /** The index, which leads to the half, follows the log with a small delay. */
    private static boolean resumed(DefaultMQAdminExt admin, String id) throws Exception {
        for (long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30); ; ) {
            try {
                return admin.resumeCheckHalfMessage(HALF_TOPIC, id);
            } catch (MQClientException notYet) {
                if (System.nanoTime() > deadline) {
                    throw notYet;
                }
                Thread.sleep(50);
            }
        }
    }

    private static final class AskedLater implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    private static MQClientAPIImpl api(Cluster cluster) {
        return cluster.admin().getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl();
    }

    /** By requests that are answered: one-way requests may be overtaken, and then the broker goes back to what they say. */
    @SuppressWarnings("deprecation") // nothing else leads to the offsets of a client
    private static void commit(DefaultMQPushConsumer consumer, List<MessageQueue> queues) throws Exception {
        OffsetStore offsets = consumer.getDefaultMQPushConsumerImpl().getOffsetStore();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        for (MessageQueue queue : queues) {
            while (offsets.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY) != EACH && System.nanoTime() < deadline) {
                Thread.sleep(20);
            }
            offsets.updateConsumeOffsetToBroker(queue, EACH, false);
        }
    }

    private static Object text(SubscriptionData subscription) {
        return subscription == null ? "none" : subscription.getSubString() + " " + subscription.getExpressionType();
    }

    private static Object spans(List<QueueTimeSpan> spans) {
        long right = spans.stream().filter(span -> 0 < span.getMinTimeStamp() && span.getMinTimeStamp() <= span.getMaxTimeStamp()
                && span.getConsumeTimeStamp() == span.getMaxTimeStamp() && span.getDelayTime() == 0).count();
        return right + " of " + spans.size();
    }
}
