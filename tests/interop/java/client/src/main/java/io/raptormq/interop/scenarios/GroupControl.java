package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.body.ConsumeMessageDirectlyResult;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** An administrator looks into a running consumer, lets it consume one message, and sends its group back to the beginning. */
@SuppressWarnings("deprecation") // nothing else tells the id of the client
final class GroupControl implements Scenario {
    private static final int COUNT = 10;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("control", 2);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("control", topic, "*", inbox);
        consumer.start();
        String group = consumer.getConsumerGroup();
        DefaultMQProducer producer = cluster.producer("control");
        SendResult last = null;
        for (Message message : Texts.messages(topic, "again", 0, COUNT)) {
            last = producer.send(message);
        }
        producer.shutdown();
        inbox.awaitBodies(COUNT);
        String client = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        String id = last.getOffsetMsgId();
        DefaultMQAdminExt admin = cluster.admin();
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("running", running(admin.getConsumerRunningInfo(group, client, false), topic));
        outcome.put("directly", directly(admin.consumeMessageDirectly(group, client, topic, id), inbox));
        outcome.put("status", status(admin.getConsumeStatus(topic, group, "")));
        int before = inbox.messages().size();
        outcome.put("reset", new TreeSet<>(admin.resetOffsetByTimestamp(topic, group, 0, true).values()).toString());
        inbox.await(seen -> seen.messages().size() >= before + COUNT, "everything once more");
        outcome.put("bodies", inbox.bodies().size());
        outcome.put("info of nobody", AnswerCode.of(() -> admin.getConsumerRunningInfo(group, "nobody", false)));
        outcome.put("nobody consumes", AnswerCode.of(() -> admin.consumeMessageDirectly(group, "nobody", topic, id)));
        outcome.put("reset of an unknown group", AnswerCode.of(() -> admin.resetOffsetByTimestamp(topic, cluster.name("strangers"), 0, true)));
        consumer.shutdown();
        outcome.put("status of nobody", AnswerCode.of(() -> admin.getConsumeStatus(topic, group, "")));
        return outcome;
    }

    private static Object running(ConsumerRunningInfo info, String topic) {
        long queues = info.getMqTable().keySet().stream().filter(queue -> queue.getTopic().equals(topic)).count();
        return info.getProperties().get(ConsumerRunningInfo.PROP_CONSUME_TYPE) + ", queues of the topic: " + queues;
    }

    private static Object directly(ConsumeMessageDirectlyResult result, Inbox inbox) {
        List<String> bodies = inbox.messages().stream().map(Inbox::text).toList();
        return result.getConsumeResult() + ", order " + result.isOrder() + ", " + bodies.get(bodies.size() - 1);
    }

    private static Object status(Map<String, Map<MessageQueue, Long>> status) {
        return "members: " + status.size() + ", queues: " + status.values().stream().mapToInt(Map::size).sum();
    }
}
