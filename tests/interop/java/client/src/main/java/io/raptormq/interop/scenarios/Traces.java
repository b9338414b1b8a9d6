package io.raptormq.interop.scenarios;

import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.trace.TraceBean;
import org.apache.rocketmq.client.trace.TraceContext;
import org.apache.rocketmq.client.trace.TraceDataEncoder;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Producer and consumer report what they do with a message to the trace topic. */
final class Traces implements Scenario {
    private static final String TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC";

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("traced", 1);
        Inbox traces = new Inbox();
        DefaultMQPushConsumer reader = cluster.pushConsumer("traces_reader", TRACE_TOPIC, "*", traces);
        reader.start();
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = cluster.pushConsumer("traced", topic, "*", inbox);
        consumer.setEnableTrace(true);
        consumer.start();
        DefaultMQProducer producer = cluster.unstartedProducer("traced");
        producer.setEnableTrace(true);
        producer.start();
        Message message = Texts.message(topic, "traced");
        message.setKeys("order");
        message.setTags("paid");
        SendResult sent = producer.send(message);
        inbox.awaitBodies(1);
        traces.await(seen -> reports(seen, sent.getMsgId()).size() >= 3, "three reports");
        producer.shutdown();
        consumer.shutdown();
        reader.shutdown();
        return new TreeMap<>(reports(traces, sent.getMsgId()));
    }

    /** What is reported of a message, by kind of report. */
    private static Map<String, Object> reports(Inbox traces, String messageId) {
        Map<String, Object> found = new TreeMap<>();
        for (MessageExt trace : traces.messages()) {
            for (TraceContext context : TraceDataEncoder.decoderFromTraceDataString(Inbox.text(trace))) {
                for (TraceBean bean : context.getTraceBeans()) {
                    if (messageId.equals(bean.getMsgId())) {
                        Set<String> keys = new TreeSet<>(Set.of(trace.getKeys().split(" ")));
                        boolean byId = keys.remove(messageId);
                        found.put(context.getTraceType().name(), Map.of(
                                "success", context.isSuccess(), "keys", bean.getKeys(), "found by", keys, "found by id", byId));
                    }
                }
            }
        }
        return found;
    }
}
