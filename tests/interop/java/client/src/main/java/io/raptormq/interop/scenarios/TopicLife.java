package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.admin.TopicStatsTable;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** A topic created, described, listed, counted, enlarged and deleted through the administration client. */
final class TopicLife implements Scenario {
    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        Map<String, Object> outcome = new TreeMap<>();
        DefaultMQAdminExt admin = cluster.admin();
        String topic = cluster.createTopic("topic_life", 3);
        BrokerData broker = admin.examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next();
        outcome.put("cluster", broker.getCluster() + "/" + broker.getBrokerName() + " " + broker.getBrokerAddrs().keySet());
        outcome.put("created", describe(admin.examineTopicConfig(broker.selectBrokerAddr(), topic)));
        outcome.put("listed", admin.fetchAllTopicList().getTopicList().contains(topic));
        DefaultMQProducer producer = cluster.producer("topic_life");
        for (int i = 0; i < 9; i++) {
            producer.send(Texts.message(topic, "x"));
        }
        producer.shutdown();
        TopicStatsTable stats = admin.examineTopicStats(topic);
        long messages = stats.getOffsetTable().values().stream().mapToLong(each -> each.getMaxOffset() - each.getMinOffset()).sum();
        outcome.put("stats", stats.getOffsetTable().size() + " queues, " + messages + " messages");
        admin.createAndUpdateTopicConfig(broker.selectBrokerAddr(), new TopicConfig(topic, 5, 5, 6));
        outcome.put("enlarged", describe(admin.examineTopicConfig(broker.selectBrokerAddr(), topic)));
        outcome.put("route", admin.examineTopicRouteInfo(topic).getQueueDatas().get(0).getWriteQueueNums());
        admin.deleteTopicInBroker(Set.of(broker.selectBrokerAddr()), topic);
        admin.deleteTopic(topic, broker.getCluster());
        outcome.put("deleted", AnswerCode.of(() -> admin.examineTopicRouteInfo(topic)));
        return outcome;
    }

    private static String describe(TopicConfig config) {
        return config.getReadQueueNums() + "/" + config.getWriteQueueNums() + " perm " + config.getPerm() + " "
                + config.getTopicFilterType() + " order " + config.isOrder() + " " + new TreeMap<>(config.getAttributes());
    }
}
