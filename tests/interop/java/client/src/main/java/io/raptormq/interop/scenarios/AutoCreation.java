package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.protocol.route.QueueData;

/** A topic that nobody created comes into being with the first message sent to it. */
final class AutoCreation implements Scenario {
    private static final int COUNT = 12;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.name("nobody_created_this");
        DefaultMQProducer producer = cluster.producer("auto_creation");
        for (Message message : Texts.messages(topic, "auto", 0, COUNT)) {
            producer.send(message);
        }
        producer.shutdown();
        List<QueueData> queues = cluster.admin().examineTopicRouteInfo(topic).getQueueDatas();
        try (Reading reading = new Reading(cluster, "auto_creation_reader")) {
            Inbox inbox = new Inbox();
            inbox.add(reading.all(topic));
            return Map.of(
                    "brokers", queues.size(),
                    "readQueues", queues.get(0).getReadQueueNums(),
                    "writeQueues", queues.get(0).getWriteQueueNums(),
                    "permission", queues.get(0).getPerm(),
                    "equal", inbox.bodies().equals(Texts.bodies("auto", 0, COUNT)));
        }
    }
}
