package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Clients that use the broker's second port, two below the one in the route, as all did before 4.5. */
final class VipChannel implements Scenario {
    private static final int COUNT = 20;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("vip", 2);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("vip", topic, "*", inbox);
        consumer.setVipChannelEnabled(true);
        consumer.start();
        DefaultMQProducer producer = cluster.unstartedProducer("vip");
        producer.setVipChannelEnabled(true);
        producer.start();
        Map<String, Object> outcome = new TreeMap<>();
        for (Message message : Texts.messages(topic, "vip", 0, COUNT)) {
            outcome.put("sent", producer.send(message).getSendStatus().name());
        }
        inbox.awaitBodies(COUNT);
        producer.shutdown();
        consumer.shutdown();
        DefaultMQAdminExt admin = new DefaultMQAdminExt(10_000);
        cluster.configure(admin);
        admin.setVipChannelEnabled(true);
        admin.start();
        outcome.put("stored", admin.examineTopicStats(topic).getOffsetTable().values().stream().mapToLong(each -> each.getMaxOffset()).sum());
        admin.shutdown();
        outcome.put("received", inbox.bodies().equals(Texts.bodies("vip", 0, COUNT)));
        return outcome;
    }
}
