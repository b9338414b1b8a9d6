package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** Who is let in, and what he may do; for servers with access control on, where {@code root} is a super user. */
final class AccessControl implements Scenario {
    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        Map<String, Object> outcome = new TreeMap<>();
        DefaultMQAdminExt root = new DefaultMQAdminExt(hook("root", "root-secret"), 10_000);
        start(root, cluster, "root");
        String broker = root.examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next().selectBrokerAddr();
        for (String topic : List.of("orders", "bills")) {
            root.createAndUpdateTopicConfig(broker, new TopicConfig(topic, 1, 1, 6));
        }
        root.createUser(broker, "alice", "alice-secret", "Normal");
        outcome.put("a user twice", end(() -> {
            root.createUser(broker, "alice", "other", "Normal");
            return 0;
        }));
        outcome.put("no policy", sent(cluster, "orders", hook("alice", "alice-secret")));
        root.createAcl(broker, "User:alice", List.of("Topic:ord*"), List.of("Pub"), List.of("127.0.0.1"), "Allow");
        outcome.put("policy", root.getAcl(broker, "User:alice"));
        outcome.put("allowed", sent(cluster, "orders", hook("alice", "alice-secret")));
        outcome.put("another topic", sent(cluster, "bills", hook("alice", "alice-secret")));
        outcome.put("wrong secret", sent(cluster, "orders", hook("alice", "guessed")));
        outcome.put("unknown user", sent(cluster, "orders", hook("mallory", "x")));
        outcome.put("unsigned", sent(cluster, "orders", null));
        root.createAcl(broker, "User:alice", List.of("Topic:bills"), List.of("Pub"), List.of("10.0.0.0/8"), "Allow");
        outcome.put("from elsewhere", sent(cluster, "bills", hook("alice", "alice-secret")));
        outcome.put("policy for nobody", end(() -> {
            root.createAcl(broker, "User:nobody", List.of("Topic:x"), List.of("Pub"), null, "Allow");
            return 0;
        }));
        root.updateUser(broker, "alice", null, null, "disable");
        outcome.put("disabled", sent(cluster, "orders", hook("alice", "alice-secret")));
        // bob is for the clients in other languages, whose turn comes next
        root.createUser(broker, "bob", "bob-secret", "Normal");
        root.createAcl(broker, "User:bob", List.of("Topic:orders"), List.of("Pub", "Sub"), null, "Allow");
        root.createAcl(broker, "User:bob", List.of("Group:*"), List.of("Sub"), null, "Allow");
        root.shutdown();
        return outcome;
    }

    private static RPCHook hook(String accessKey, String secretKey) {
        return new AclClientRPCHook(new SessionCredentials(accessKey, secretKey));
    }

    private static void start(DefaultMQAdminExt admin, Cluster cluster, String name) throws MQClientException {
        cluster.configure(admin);
        admin.setInstanceName(name);
        admin.start();
    }

    private static Object sent(Cluster cluster, String topic, RPCHook hook) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("senders", hook);
        cluster.configure(producer);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        try {
            return end(() -> producer.send(Texts.message(topic, "x")).getSendStatus());
        } finally {
            producer.shutdown();
        }
    }

    private static Object end(Callable<?> call) throws Exception {
        try {
            return call.call();
        } catch (MQBrokerException refused) {
            return refused.getResponseCode() + " " + refused.getErrorMessage();
        } catch (MQClientException refused) {
            if (refused.getCause() instanceof MQBrokerException broker) {
                return broker.getResponseCode() + " " + broker.getErrorMessage();
            }
            return refused.getResponseCode() + " " + refused.getErrorMessage();
        }
    }
}
