package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** SQL92 filters of push and pull consumers; what such a filter let through and was not consumed comes again. */
@SuppressWarnings("deprecation") // the lite pull consumer hides the single pull that is wanted here
final class SqlFilter implements Scenario {
    private static final int COUNT = 20;
    private static final int ONE_SECOND_LEVEL = 1;
    private static final String[] FILTERS = {
        "price > 17", "price >= 5 AND price < 7", "price BETWEEN 3 AND 4", "kind IN ('odd', 'none') AND price < 4", "kind IS NULL",
        "kind IS NOT NULL AND NOT kind = 'even' AND price <= 3", "name CONTAINS '-1' AND price <> 1", "name STARTSWITH 'sql-1'",
        "name ENDSWITH '9'", "TAGS = 'tagged' OR price = 2", "name > 5 OR price = 2", "price", "kind IS NULL IS NOT NULL", "price LIKE '1'"
    };

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("sql", 1);
        send(cluster, topic);
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("push", push(cluster, topic));
        try (Reading reading = new Reading(cluster, "sql_pulls")) {
            MessageQueue queue = reading.queues(topic).get(0);
            awaitHeartbeat(reading.consumer(), queue);
            for (String filter : FILTERS) {
                outcome.put(filter, pull(reading.consumer(), queue, filter));
            }
        }
        outcome.put("refused at the start", refusal(cluster, topic, "price > 'text'"));
        return outcome;
    }

    private static void send(Cluster cluster, String topic) throws Exception {
        DefaultMQProducer producer = cluster.producer("sql");
        for (int i = 0; i < COUNT; i++) {
            Message message = Texts.message(topic, "sql-" + i);
            message.putUserProperty("name", "sql-" + i);
            message.putUserProperty("price", Integer.toString(i));
            if (i % 5 != 0) {
                message.putUserProperty("kind", i % 2 == 0 ? "even" : "odd");
            } else {
                message.setTags("tagged");
            }
            producer.send(message);
        }
        producer.shutdown();
    }

    private static Object push(Cluster cluster, String topic) throws Exception {
        Inbox inbox = new Inbox();
        ConcurrentSkipListSet<String> again = new ConcurrentSkipListSet<>();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("sql");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, MessageSelector.bySql("price BETWEEN 6 AND 14 AND kind = 'even'"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(ONE_SECOND_LEVEL);
            if (Inbox.text(messages.get(0)).equals("sql-8") && messages.get(0).getReconsumeTimes() == 0) {
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            messages.forEach(message -> again.add(Inbox.text(message) + " after " + message.getReconsumeTimes()));
            inbox.add(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        inbox.awaitBodies((int) IntStream.rangeClosed(6, 14).filter(i -> i % 2 == 0 && i % 5 != 0).count());
        consumer.shutdown();
        return again;
    }

    /** Only a heartbeat tells the client the broker's version, and only then does it send filters. */
    private static void awaitHeartbeat(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        for (long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30); ; Thread.sleep(50)) {
            try {
                consumer.pull(queue, MessageSelector.bySql("TRUE"), 0, 1);
                return;
            } catch (MQClientException early) {
                if (System.nanoTime() > deadline) {
                    throw early;
                }
            }
        }
    }

    private static Object pull(DefaultMQPullConsumer consumer, MessageQueue queue, String filter) throws Exception {
        try {
            PullResult result = consumer.pull(queue, MessageSelector.bySql(filter), 0, 32);
            List<String> bodies = result.getMsgFoundList() == null ? List.of() : result.getMsgFoundList().stream().map(Inbox::text).toList();
            return result.getPullStatus() + " " + bodies + ", next " + result.getNextBeginOffset();
        } catch (MQBrokerException refused) {
            return "code " + refused.getResponseCode();
        }
    }

    private static int refusal(Cluster cluster, String topic, String filter) throws Exception {
        DefaultMQPushConsumer consumer = cluster.pushConsumer("sql_refused", topic, "*", new Inbox());
        consumer.subscribe(topic, MessageSelector.bySql(filter));
        try {
            consumer.start();
            return 0;
        } catch (MQClientException refused) {
            return refused.getResponseCode();
        } finally {
            consumer.shutdown();
        }
    }
}
