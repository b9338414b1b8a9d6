package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.remoting.exception.RemotingConnectException;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The cluster under test, and the clients of it. Names of topics and groups get a prefix, so that several runs can share a cluster.
 */
final class Cluster implements AutoCloseable {
    private static final int READ_WRITE = 6;
    private static final int CONNECT_TRIES = 10;

    /** Of a request; a busy machine may take seconds, and with the first one that is late the client closes its connection. */
    private static final int TIMEOUT_MS = 30_000;

    private final String nameServer;
    private final String prefix;
    private final AtomicInteger instances = new AtomicInteger();
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt(TIMEOUT_MS);

    Cluster(String nameServer, String prefix) throws MQClientException {
        this.nameServer = nameServer;
        this.prefix = prefix;
        configure(admin);
        admin.start();
        connect();
    }

    /** Opens the connection to the name server; on a busy machine the client gives up before its own threads have started. */
    private void connect() throws MQClientException {
        for (int tries = 1; ; tries++) {
            try {
                admin.examineBrokerClusterInfo();
                return;
            } catch (RemotingConnectException slow) {
                if (tries == CONNECT_TRIES) {
                    throw new MQClientException("no connection to " + nameServer, slow);
                }
            } catch (Exception error) {
                throw new MQClientException("no answer from " + nameServer, error);
            }
        }
    }

    String name(String name) {
        return prefix + name;
    }

    /** Creates a topic by request and returns its name with the prefix. */
    String createTopic(String name, int queues) throws Exception {
        String topic = name(name);
        for (BrokerData broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            admin.createAndUpdateTopicConfig(broker.selectBrokerAddr(), new TopicConfig(topic, queues, queues, READ_WRITE));
        }
        return topic;
    }

    /** The same for a topic of a queue type: SimpleCQ or BatchCQ. */
    String createTopic(String name, int queues, String queueType) throws Exception {
        TopicConfig config = new TopicConfig(name(name), queues, queues, READ_WRITE);
        config.setAttributes(Map.of("+queue.type", queueType));
        for (BrokerData broker : admin.examineBrokerClusterInfo().getBrokerAddrTable().values()) {
            admin.createAndUpdateTopicConfig(broker.selectBrokerAddr(), config);
        }
        return config.getTopicName();
    }

    /** The address of the one broker. */
    String brokerAddress() throws Exception {
        return admin.examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next().selectBrokerAddr();
    }

    DefaultMQAdminExt admin() {
        return admin;
    }

    /** A started producer. */
    DefaultMQProducer producer(String group) throws MQClientException {
        DefaultMQProducer producer = unstartedProducer(group);
        producer.start();
        return producer;
    }

    DefaultMQProducer unstartedProducer(String group) {
        DefaultMQProducer producer = new DefaultMQProducer(name(group));
        configure(producer);
        return producer;
    }

    /** A push consumer that begins at the first message and puts what it receives into an inbox; still to be started. */
    DefaultMQPushConsumer pushConsumer(String group, String topic, String expression, Inbox inbox) throws MQClientException {
        DefaultMQPushConsumer consumer = pushConsumer(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, expression);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            inbox.add(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        return consumer;
    }

    /** A push consumer that still has to be given a subscription and a listener, and started. */
    DefaultMQPushConsumer pushConsumer(String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(name(group));
        configure(consumer);
        consumer.setConsumeThreadMin(2);
        consumer.setConsumeThreadMax(2);
        return consumer;
    }

    DefaultLitePullConsumer litePullConsumer(String group) {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(name(group));
        configure(consumer);
        consumer.setPullThreadNums(8); // each queue that waits for messages occupies a thread
        return consumer;
    }

    /** Every client an instance of its own, as processes on different machines would be. */
    void configure(ClientConfig client) {
        client.setNamesrvAddr(nameServer);
        client.setInstanceName(prefix + instances.incrementAndGet());
        client.setVipChannelEnabled(false);
        client.setHeartbeatBrokerInterval(2_000);
        client.setPollNameServerInterval(2_000);
        client.setMqClientApiTimeout(TIMEOUT_MS);
        if (client instanceof DefaultMQProducer producer) {
            producer.setSendMsgTimeout(TIMEOUT_MS);
        }
    }

    @Override
    public void close() {
        admin.shutdown();
    }
}
