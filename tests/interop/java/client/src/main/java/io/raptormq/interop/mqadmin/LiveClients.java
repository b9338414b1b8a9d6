package io.raptormq.interop.mqadmin;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.store.OffsetStore;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.topic.TopicValidator;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Clients that are connected while commands look at them. Their client ids are 127.0.0.1@ and the name of their group.
 *
 * <pre>
 * +produce GROUP TOPIC KEY BODY   a producer sends one message and reports it to the trace topic
 * +consume GROUP TOPIC COUNT      a consumer of one queue has consumed so many messages, and the broker knows
 * +join GROUP TOPIC NAME TAGS     another one of the group, its client id 127.0.0.1@NAME, which has to come behind the first one's
 * +stop                           all of them go away
 * </pre>
 */
@SuppressWarnings("deprecation") // nothing else leads to heartbeats and offsets
final class LiveClients {
    private static final long LONGEST_SECONDS = 20;
    private static final int POLL_MILLIS = 50;
    private static final int MOST_TRACES = 32;

    /** As many as processors by default: when all of them ask the broker on behalf of its own questions, none is left to take the answers. */
    private static final int CALLBACK_THREADS = 8;

    private final Deque<Runnable> ends = new ArrayDeque<>();
    private SendResult last;

    /** Does what a line says; its last word is the name server. */
    String play(List<String> words) throws Exception {
        String nameServer = words.get(words.size() - 1);
        switch (words.get(0)) {
            case "+produce" -> produce(nameServer, words.get(1), new Message(words.get(2), "lively", words.get(3), words.get(4).getBytes(StandardCharsets.UTF_8)));
            case "+consume" -> consume(nameServer, words.get(1), words.get(2), Long.parseLong(words.get(3)));
            case "+join" -> consumer(nameServer, words.get(1), words.get(3), words.get(2), words.get(4));
            case "+stop" -> ends.forEach(Runnable::run);
            default -> throw new IllegalArgumentException(words.toString());
        }
        return "done";
    }

    /** The message that was sent last: its id and its offset id in the places of "{sent}" and "{place}". */
    String insert(String line) {
        return last == null ? line : line.replace("{sent}", last.getMsgId()).replace("{place}", last.getOffsetMsgId());
    }

    private void produce(String nameServer, String group, Message message) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setEnableTrace(true);
        configure(producer, nameServer, group);
        producer.start();
        ends.push(producer::shutdown);
        last = producer.send(message);
        producer.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock();
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        configure(admin, nameServer, group + "_admin");
        admin.start();
        await("a trace", () -> isTraced(admin, last.getMsgId()));
        admin.shutdown();
    }

    private static boolean isTraced(DefaultMQAdminExt admin, String id) throws Exception {
        try {
            return !admin.queryMessage(TopicValidator.RMQ_SYS_TRACE_TOPIC, id, MOST_TRACES, 0, Long.MAX_VALUE).getMessageList().isEmpty();
        } catch (MQClientException notYet) {
            return false;
        }
    }

    private void consume(String nameServer, String group, String topic, long count) throws Exception {
        DefaultMQPushConsumer consumer = consumer(nameServer, group, group, topic, "*");
        DefaultMQPushConsumerImpl inside = consumer.getDefaultMQPushConsumerImpl();
        await("the queue of retries", () -> {
            inside.getmQClientFactory().updateTopicRouteInfoFromNameServer(); // it came with the first heartbeat, and would be seen in half a minute
            return inside.getRebalanceImpl().getProcessQueueTable().size() == 2;
        });
        MessageQueue queue = consumer.fetchSubscribeMessageQueues(topic).iterator().next();
        OffsetStore offsets = inside.getOffsetStore();
        await("progress", () -> offsets.readOffset(queue, ReadOffsetType.READ_FROM_MEMORY) == count);
        offsets.updateConsumeOffsetToBroker(queue, count, false); // one-way requests may be overtaken
    }

    private DefaultMQPushConsumer consumer(String nameServer, String group, String name, String topic, String tags) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        configure(consumer, nameServer, name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(1);
        consumer.setConsumeThreadMax(1);
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        consumer.start();
        ends.push(consumer::shutdown);
        return consumer;
    }

    private static void configure(ClientConfig client, String nameServer, String name) {
        client.setNamesrvAddr(nameServer);
        client.setClientIP("127.0.0.1");
        client.setInstanceName(name);
        client.setVipChannelEnabled(false);
        client.setClientCallbackExecutorThreads(CALLBACK_THREADS);
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void await(String what, Condition condition) throws Exception {
        for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(LONGEST_SECONDS); !condition.holds();) {
            if (System.nanoTime() > end) {
                throw new IllegalStateException(what + " did not come");
            }
            Thread.sleep(POLL_MILLIS);
        }
    }
}
