package io.raptormq.interop.scenarios;

import java.util.Arrays;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.body.LockBatchRequestBody;
import org.apache.rocketmq.remoting.protocol.body.UnlockBatchRequestBody;

/**
 * Locks of queues, request by request: who gets which, renewal, expiry, unlocking; and an orderly consumer that dies without a word, whose queues the
 * next one gets when the locks have expired, not before. {@code rocketmq.broker.rebalance.lockMaxLiveTime} says at the broker and here when that is.
 */
final class QueueLocks implements Scenario {
    private static final long LIVE_MILLIS = Long.getLong("rocketmq.broker.rebalance.lockMaxLiveTime");
    private static final int TIMEOUT_MILLIS = 10_000;
    private static final int POLL_MILLIS = 100;
    private static final int PATIENCE_SECONDS = 60;
    private static final int QUEUES = 2;
    private static final int COUNT = 20;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        Locks locks = new Locks(cluster, cluster.name("queue_locks"));
        Map<String, Object> outcome = new TreeMap<>();
        Death death = new Death(cluster);
        requests(locks, outcome);
        expiry(locks, outcome);
        outcome.putAll(death.inherited());
        return outcome;
    }

    private static void requests(Locks locks, Map<String, Object> outcome) throws Exception {
        outcome.put("free", locks.lock("one", 0, 1));
        outcome.put("others'", locks.lock("two", 0, 1));
        outcome.put("some of them others'", locks.lock("two", 1, 2));
        outcome.put("own, renewed", locks.lock("one", 0));
        outcome.put("own and others'", locks.lock("one", 0, 1, 2));
        outcome.put("none", locks.lock("one"));
        outcome.put("another group", locks.of("another").lock("two", 0, 1));
        outcome.put("a queue that is not there", locks.lock("one", 99, -1));
        outcome.put("a queue that is not there, others'", locks.lock("two", 99, -1));
        outcome.put("unlocked none", locks.unlock("one"));
        outcome.put("unlocked others'", locks.unlock("two", 0, 1));
        outcome.put("after that", locks.lock("two", 0, 1));
        outcome.put("unlocked, not locked", locks.unlock("two", 7));
        outcome.put("unlocked, an unknown group", locks.of("unknown").unlock("two", 0));
        outcome.put("unlocked own", locks.unlock("one", 0, 1));
        outcome.put("after that too", locks.lock("two", 0, 1));
    }

    /** One client locks two queues and renews one of them, another asks for both until it has one: which, and when. */
    private static void expiry(Locks all, Map<String, Object> outcome) throws Exception {
        Locks locks = all.of("expiry");
        long begin = System.nanoTime();
        outcome.put("expiry, locked", locks.lock("one", 0, 1));
        Set<String> got = locks.lock("two", 0, 1);
        while (got.isEmpty() && secondsSince(begin) < PATIENCE_SECONDS) {
            Thread.sleep(POLL_MILLIS);
            locks.lock("one", 1);
            got = locks.lock("two", 0, 1);
        }
        outcome.put("expiry, got", got);
        outcome.put("expiry, not before its time", System.nanoTime() - begin > TimeUnit.MILLISECONDS.toNanos(LIVE_MILLIS));
        outcome.put("expiry, asked for too late", locks.lock("one", 0, 1));
        outcome.put("expiry, unlocked too late", locks.unlock("one", 0));
        outcome.put("expiry, still the next one's", locks.lock("three", 0));
    }

    private static long secondsSince(long begin) {
        return TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begin);
    }

    /** Requests to lock and unlock queues of a topic, for one group, in the names of clients that need not exist. */
    private record Locks(Cluster cluster, MQClientAPIImpl requests, String broker, String topic, String group) {
        Locks(Cluster cluster, String topic) throws Exception {
            this(cluster, cluster.admin().getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl(), cluster.brokerAddress(), topic, topic);
        }

        Locks of(String other) {
            return new Locks(cluster, requests, broker, topic, cluster.name("queue_locks_" + other));
        }

        /** The numbers of the queues that are this client's now, or the code of the refusal. */
        Set<String> lock(String client, int... numbers) throws Exception {
            LockBatchRequestBody body = new LockBatchRequestBody();
            body.setConsumerGroup(group);
            body.setClientId(client);
            body.setMqSet(queues(numbers));
            try {
                Set<MessageQueue> held = requests.lockBatchMQ(broker, body, TIMEOUT_MILLIS);
                return held.stream().map(queue -> queue.getTopic().equals(topic) ? String.valueOf(queue.getQueueId()) : queue.toString())
                        .collect(Collectors.toCollection(TreeSet::new));
            } catch (MQBrokerException refused) {
                return Set.of("code " + refused.getResponseCode());
            }
        }

        String unlock(String client, int... numbers) throws Exception {
            UnlockBatchRequestBody body = new UnlockBatchRequestBody();
            body.setConsumerGroup(group);
            body.setClientId(client);
            body.setMqSet(queues(numbers));
            try {
                requests.unlockBatchMQ(broker, body, TIMEOUT_MILLIS, false);
                return "done";
            } catch (MQBrokerException refused) {
                return "code " + refused.getResponseCode();
            }
        }

        private Set<MessageQueue> queues(int... numbers) {
            return Arrays.stream(numbers).mapToObj(number -> new MessageQueue(topic, "broker-a", number)).collect(Collectors.toCollection(HashSet::new));
        }
    }

    /** A consumer that has consumed in order from all queues, and whose connections end as if its process were killed; and its heir. */
    @SuppressWarnings("deprecation") // nothing else leads to the connections of a client
    private static final class Death {
        private final Cluster cluster;
        private final String topic;
        private final DefaultMQProducer producer;
        private final AtomicLong firstInherited = new AtomicLong();
        private final Inbox inherited = new Inbox();
        private final long lastRenewal;
        private final DefaultMQPushConsumer heir;

        Death(Cluster cluster) throws Exception {
            this.cluster = cluster;
            topic = cluster.createTopic("queue_locks_death", QUEUES);
            producer = cluster.producer("queue_locks_death");
            Inbox inbox = new Inbox();
            DefaultMQPushConsumer victim = consumer(inbox, new AtomicLong());
            send("before");
            inbox.awaitBodies(COUNT);
            lastRenewal = System.nanoTime();
            Locks locks = new Locks(cluster, topic).of("death");
            String id = victim.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
            if (locks.lock(id, 0, 1).size() != QUEUES) {
                throw new IllegalStateException("the consumer has consumed from queues that are not its own");
            }
            victim.getDefaultMQPushConsumerImpl().getmQClientFactory().getMQClientAPIImpl().shutdown();
            heir = consumer(inherited, firstInherited);
            send("after");
        }

        Map<String, Object> inherited() throws Exception {
            inherited.awaitBodies(COUNT);
            producer.shutdown();
            heir.shutdown();
            long waited = firstInherited.get() - lastRenewal;
            return Map.of(
                    "death, not before the locks expired", waited > TimeUnit.MILLISECONDS.toNanos(LIVE_MILLIS),
                    "death, inherited", inherited.bodies().stream().filter(body -> body.startsWith("after")).count());
        }

        private void send(String name) throws Exception {
            for (int i = 0; i < COUNT; i++) {
                producer.send(Texts.message(topic, name + "-" + i), new MessageQueue(topic, "broker-a", i % QUEUES));
            }
        }

        private DefaultMQPushConsumer consumer(Inbox inbox, AtomicLong first) throws Exception {
            DefaultMQPushConsumer consumer = cluster.pushConsumer("queue_locks_death");
            consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                first.compareAndSet(0, System.nanoTime());
                inbox.add(messages);
                return ConsumeOrderlyStatus.SUCCESS;
            });
            consumer.start();
            return consumer;
        }
    }
}
