package io.raptormq.interop.golden;

import java.util.Set;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The administration requests: topics created and deleted, cluster, statistics, connections. */
final class AdminPart implements AutoCloseable {
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(10_000);
    private final String nameServer;

    AdminPart(String nameServer) throws MQClientException {
        this.nameServer = nameServer;
        GoldenSession.configure(admin, nameServer, "golden_admin");
        admin.start();
    }

    void createTopics() throws Exception {
        TopicConfig config = new TopicConfig(GoldenSession.TOPIC, 2, 2, 6);
        config.getAttributes().put("+message.type", "NORMAL");
        admin.createAndUpdateTopicConfig(brokerAddress(), config);
        admin.examineTopicRouteInfo(GoldenSession.TOPIC);
    }

    void lookAround() throws Exception {
        String broker = brokerAddress();
        admin.fetchBrokerRuntimeStats(broker);
        admin.fetchAllTopicList();
        admin.examineTopicStats(GoldenSession.TOPIC);
        admin.examineTopicConfig(broker, GoldenSession.TOPIC);
        admin.getAllTopicConfig(broker, 10_000);
        admin.examineConsumeStats("golden_puller");
        admin.queryMessage(GoldenSession.TOPIC, "key-1", 10, 0, System.currentTimeMillis());
    }

    void lookAtConsumer(String group) throws Exception {
        String client = admin.examineConsumerConnectionInfo(group).getConnectionSet().iterator().next().getClientId();
        admin.getConsumerRunningInfo(group, client, false);
    }

    void deleteTopic() throws Exception {
        admin.deleteTopicInBroker(Set.of(brokerAddress()), GoldenSession.AUTO_CREATED_TOPIC);
        admin.deleteTopicInNameServer(Set.of(nameServer), GoldenSession.AUTO_CREATED_TOPIC);
    }

    private String brokerAddress() throws Exception {
        ClusterInfo cluster = admin.examineBrokerClusterInfo();
        return cluster.getBrokerAddrTable().get("broker-a").selectBrokerAddr();
    }

    @Override
    public void close() {
        admin.shutdown();
    }
}
