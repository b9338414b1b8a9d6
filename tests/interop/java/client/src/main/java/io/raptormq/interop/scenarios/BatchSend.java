package io.raptormq.interop.scenarios;

import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** {@code send(list)}: stored one by one, in order, with consecutive offsets and one offset id each. */
final class BatchSend implements Scenario {
    private static final int BATCHES = 10;
    private static final int SIZE = 32;

    @Override
    public Map<String, Object> play(Cluster cluster) throws Exception {
        String topic = cluster.createTopic("batch", 1);
        DefaultMQProducer producer = cluster.producer("batch");
        int ids = 0;
        boolean consecutive = true;
        for (int i = 0; i < BATCHES; i++) {
            SendResult result = producer.send(batch(topic, i));
            ids += result.getOffsetMsgId().split(",").length;
            consecutive &= result.getQueueOffset() == (long) i * SIZE;
        }
        producer.shutdown();
        try (Reading reading = new Reading(cluster, "batch_reader")) {
            List<MessageExt> messages = reading.all(topic);
            long inOrder = IntStream.range(0, messages.size()).filter(i -> isInPlace(messages.get(i), i)).count();
            return Map.of("offsetIds", ids, "consecutive", consecutive, "inOrder", inOrder);
        }
    }

    private static List<Message> batch(String topic, int number) {
        List<Message> batch = Texts.messages(topic, "batch", number * SIZE, (number + 1) * SIZE);
        for (int i = 0; i < SIZE; i++) {
            batch.get(i).setTags("even" + i % 2);
            batch.get(i).setKeys("key of batch-" + (number * SIZE + i));
        }
        return batch;
    }

    private static boolean isInPlace(MessageExt message, int index) {
        String body = "batch-" + index;
        return Inbox.text(message).equals(body)
                && message.getQueueOffset() == index
                && message.getKeys().equals("key of " + body)
                && message.getTags().equals("even" + index % 2);
    }
}
