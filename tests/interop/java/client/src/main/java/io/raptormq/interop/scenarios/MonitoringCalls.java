package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.stats.Stats;
import org.apache.rocketmq.remoting.protocol.body.BrokerStatsData;
import org.apache.rocketmq.remoting.protocol.body.ClusterInfo;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** What Apache's exporter and dashboard ask a broker for and parse without looking whether it is there. */
final class MonitoringCalls implements Scenario {
    private static final List<String> WHOLE_NUMBERS = List.of(
            "msgPutTotalTodayNow", "msgGetTotalTodayNow", "msgPutTotalTodayMorning", "msgGetTotalTodayMorning",
            "msgPutTotalYesterdayMorning", "msgGetTotalYesterdayMorning", "sendThreadPoolQueueHeadWaitTimeMills",
            "queryThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueSize",
            "pullThreadPoolQueueSize", "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity",
            "queryThreadPoolQueueCapacity", "commitLogMinOffset", "commitLogMaxOffset", "bootTimestamp", "dispatchMaxBuffer",
            "brokerVersion", "pageCacheLockTimeMills", "getMessageEntireTimeMax", "putMessageTimesTotal",
            "startAcceptSendRequestTimeStamp", "putMessageEntireTimeMax", "earliestMessageTimeStamp",
            "remainTransientStoreBufferNumbs", "dispatchBehindBytes", "putMessageSizeTotal");
    private static final List<String> FRACTIONS = List.of(
            "consumeQueueDiskRatio", "commitLogDiskRatio", "putMessageAverageSize", "putLatency99", "putLatency999");
    private static final List<String> RATES = List.of("putTps", "getMissTps", "getTransferredTps", "getTotalTps", "getFoundTps");

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("monitoring", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("monitoring", topic, "*", inbox);
        consumer.start();
        DefaultMQProducer producer = cluster.producer("monitoring");
        producer.send(Texts.message(topic, "seen"));
        producer.shutdown();
        inbox.awaitBodies(1);
        ClusterInfo info = cluster.admin().examineBrokerClusterInfo();
        String broker = info.getBrokerAddrTable().values().iterator().next().selectBrokerAddr();
        Map<String, Object> outcome = new TreeMap<>();
        outcome.put("figures that cannot be parsed", unparsed(cluster.admin().fetchBrokerRuntimeStats(broker).getTable()));
        String readers = topic + "@" + consumer.getConsumerGroup();
        String everything = info.getClusterAddrTable().keySet().iterator().next();
        statistics(cluster.admin(), broker, outcome, Map.of(
                Stats.TOPIC_PUT_NUMS, topic, Stats.TOPIC_PUT_SIZE, topic, Stats.GROUP_GET_NUMS, readers,
                Stats.GROUP_GET_SIZE, readers, Stats.BROKER_PUT_NUMS, everything, Stats.BROKER_GET_NUMS, everything));
        outcome.put("statistic of nobody", AnswerCode.of(
                () -> cluster.admin().viewBrokerStatsData(broker, Stats.TOPIC_PUT_SIZE, cluster.name("missing"))));
        consumer.shutdown();
        return outcome;
    }

    private static void statistics(DefaultMQAdminExt admin, String broker, Map<String, Object> outcome, Map<String, String> asked)
            throws Exception {
        for (Map.Entry<String, String> each : asked.entrySet()) {
            BrokerStatsData found = admin.viewBrokerStatsData(broker, each.getKey(), each.getValue());
            boolean isWhole = found.getStatsMinute() != null && found.getStatsHour() != null && found.getStatsDay() != null;
            outcome.put(each.getKey(), isWhole ? "minute, hour and day" : "incomplete");
        }
    }

    /** The keys whose values are not there, or not of the form that the exporter splits and parses. */
    private static Object unparsed(Map<String, String> table) {
        TreeSet<String> wrong = new TreeSet<>();
        WHOLE_NUMBERS.forEach(key -> check(wrong, key, () -> Long.parseLong(table.get(key))));
        FRACTIONS.forEach(key -> check(wrong, key, () -> Double.parseDouble(table.get(key))));
        RATES.forEach(key -> check(wrong, key, () -> rate(table.get(key))));
        check(wrong, "remainHowManyDataToFlush", () -> Double.parseDouble(table.get("remainHowManyDataToFlush").split(" ")[0]));
        check(wrong, "putMessageDistributeTime", () -> ranges(table.get("putMessageDistributeTime")));
        check(wrong, "commitLogDirCapacity", () -> {
            String[] words = table.get("commitLogDirCapacity").split(" ");
            Double.parseDouble(words[2]);
            Double.parseDouble(words[6]);
        });
        return wrong;
    }

    /** Blank for the first seconds of Apache RocketMQ, then the averages of 10 s, a minute and ten minutes. */
    private static void rate(String text) {
        if (!text.isBlank()) {
            Double.parseDouble(text.split(" ")[0]);
        }
    }

    /** "null" for the first minute of Apache RocketMQ, then a count for each range of times. */
    private static void ranges(String text) {
        for (String range : "null".equals(text) ? new String[0] : text.trim().split(" ")) {
            Long.parseLong(range.split(":")[1]);
        }
    }

    private static void check(TreeSet<String> wrong, String key, Runnable parse) {
        try {
            parse.run();
        } catch (RuntimeException missing) {
            wrong.add(key);
        }
    }
}
