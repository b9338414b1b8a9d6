package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** Transactions that are committed, rolled back, decided when the broker asks, and never decided; also across a restart. */
final class Transactions implements Scenario {
    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("transactions", 2);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("transactions", topic, "paid", inbox);
        consumer.start();
        Decisions decisions = new Decisions();
        TransactionMQProducer producer = producer(cluster, "transactions", decisions);
        producer.send(Texts.message(topic, "without a tag")); // so that no half is at offset 0 of an empty log
        Map<String, Object> outcome = new TreeMap<>();
        Map<String, String> ids = new TreeMap<>();
        for (String body : List.of("commit", "rollback", "asked commit", "asked rollback", "never")) {
            TransactionSendResult sent = producer.sendMessageInTransaction(message(topic, body), null);
            outcome.put("answer to " + body, sent.getSendStatus() + " " + sent.getLocalTransactionState());
            ids.put(body, sent.getTransactionId());
        }
        inbox.awaitBodies(2);
        decisions.awaitQuestions("asked commit", "asked rollback", "never"); // which threads of the client take in any order
        producer.shutdown();
        consumer.shutdown();
        for (MessageExt received : inbox.messages()) {
            outcome.put(Inbox.text(received), describe(received, ids.get(Inbox.text(received))));
        }
        outcome.put("asked about", decisions.askedAbout());
        outcome.put("received", inbox.bodies());
        return outcome;
    }

    private static Message message(String topic, String body) {
        Message message = Texts.message(topic, body);
        message.setTags("paid");
        message.setKeys("order");
        return message;
    }

    private static TransactionMQProducer producer(Cluster cluster, String group, TransactionListener listener) throws MQClientException {
        TransactionMQProducer producer = new TransactionMQProducer(cluster.name(group));
        cluster.configure(producer);
        producer.setTransactionListener(listener);
        producer.start();
        return producer;
    }

    private static Map<String, Object> describe(MessageExt message, String transactionId) {
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("transaction flag", MessageSysFlag.getTransactionValue(message.getSysFlag()));
        outcome.put("knows its half", message.getPreparedTransactionOffset() > 0);
        outcome.put("transaction id", transactionId.equals(message.getTransactionId()));
        TreeSet<String> names = new TreeSet<>(message.getProperties().keySet());
        names.removeAll(List.of("CONSUME_START_TIME", "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"));
        outcome.put("properties", names);
        return outcome;
    }

    /** Decides by the body of a message and remembers what it was asked about. */
    private static final class Decisions implements TransactionListener {
        private final Set<String> asked = new TreeSet<>();

        private synchronized void note(String body) {
            asked.add(body);
            notifyAll();
        }

        /** Without what was decided at once: the reference may ask about it while the decision is on its way. */
        synchronized Set<String> askedAbout() {
            Set<String> bodies = new TreeSet<>(asked);
            bodies.removeAll(List.of("commit", "rollback"));
            return bodies;
        }

        synchronized void awaitQuestions(String... about) throws InterruptedException {
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (!asked.containsAll(List.of(about)) && System.nanoTime() < deadline) {
                wait(1_000);
            }
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return switch (new String(message.getBody())) {
                case "commit" -> LocalTransactionState.COMMIT_MESSAGE;
                case "rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            };
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String body = Inbox.text(message);
            note(body);
            return switch (body) {
                case "asked commit", "left open" -> LocalTransactionState.COMMIT_MESSAGE;
                case "asked rollback" -> LocalTransactionState.ROLLBACK_MESSAGE;
                default -> LocalTransactionState.UNKNOW;
            };
        }
    }

    /** Leaves a transaction open whose producer goes away, one committed and one rolled back. */
    static final class Before implements Scenario {
        @Override
        public Map<String, Object> play(Cluster cluster) throws Exception {
            String topic = cluster.createTopic("open_transaction", 1);
            TransactionMQProducer producer = producer(cluster, "open_transaction", new Decisions());
            for (String body : List.of("left open", "commit", "rollback")) {
                producer.sendMessageInTransaction(message(topic, body), null);
            }
            producer.shutdown();
            return Map.of("sent", 3);
        }
    }

    /** After a restart the broker asks a new member of the producer group, and delivers what that commits. */
    static final class After implements Scenario {
        @Override
        public Map<String, Object> play(Cluster cluster) throws Exception {
            Decisions decisions = new Decisions();
            TransactionMQProducer producer = producer(cluster, "open_transaction", decisions);
            producer.send(message(cluster.name("open_transaction"), "plain")); // heartbeats go to brokers it has sent to
            Inbox inbox = new Inbox();
            DefaultMQPushConsumer consumer = cluster.pushConsumer("open_transaction", cluster.name("open_transaction"), "*", inbox);
            consumer.start();
            inbox.awaitBodies(3);
            producer.shutdown();
            consumer.shutdown();
            return Map.of("received", inbox.bodies(), "asked about", decisions.askedAbout());
        }
    }
}
