package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** What a broker refuses, and with which code. */
final class Refusals implements Scenario {
    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("refusals", 2);
        String system = "SCHEDULE_TOPIC_" + "X".repeat(4);
        DefaultMQProducer producer = cluster.producer("refusals");
        producer.setRetryTimesWhenSendFailed(0);
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("queue 77 of 2", AnswerCode.of(() -> producer.send(Texts.message(topic, "x"), queue(producer, topic, 77))));
        outcome.put("route of no topic", AnswerCode.of(() -> cluster.admin().examineTopicRouteInfo(cluster.name("missing"))));
        outcome.put("create a system topic", AnswerCode.of(() -> create(cluster, system)));
        outcome.put("create with a bad name", AnswerCode.of(() -> create(cluster, "no spaces please")));
        outcome.put("properties of 33 KB", AnswerCode.of(() -> producer.send(tooManyProperties(topic))));
        producer.shutdown();
        return outcome;
    }

    private static MessageQueue queue(DefaultMQProducer producer, String topic, int queueId) throws MQClientException {
        return new MessageQueue(topic, producer.fetchPublishMessageQueues(topic).get(0).getBrokerName(), queueId);
    }

    private static void create(Cluster cluster, String topic) throws Exception {
        String broker = cluster.admin().examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next().selectBrokerAddr();
        cluster.admin().createAndUpdateTopicConfig(broker, new TopicConfig(topic, 1, 1, 6));
    }

    private static Message tooManyProperties(String topic) {
        Message message = Texts.message(topic, "x");
        message.putUserProperty("large", "v".repeat(33_000));
        return message;
    }
}
