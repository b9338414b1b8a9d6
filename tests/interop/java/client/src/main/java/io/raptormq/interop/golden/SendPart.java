package io.raptormq.interop.golden;

import java.util.List;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Every kind of send that a producer knows: plain, with all fields set, compressed, one-way, batch, auto-created topic, refused. */
final class SendPart {
    private static final int COMPRESSED_BODY_BYTES = 5000;
    private static final int OVERSIZE_BYTES = 4 * 1024 * 1024 + 1;

    private final String nameServer;

    SendPart(String nameServer) {
        this.nameServer = nameServer;
    }

    void run() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("golden_producer");
        GoldenSession.configure(producer, nameServer, "golden_producer");
        producer.setMaxMessageSize(2 * OVERSIZE_BYTES);
        producer.setCompressMsgBodyOverHowmuch(4096);
        producer.start();
        try {
            MessageQueue queue = new MessageQueue(GoldenSession.TOPIC, "broker-a", 0);
            producer.send(new Message(GoldenSession.TOPIC, GoldenSession.utf8("plain")), queue);
            producer.send(decorated(), queue);
            producer.send(new Message(GoldenSession.TOPIC, "A", new byte[COMPRESSED_BODY_BYTES]), queue);
            producer.sendOneway(new Message(GoldenSession.TOPIC, "B", GoldenSession.utf8("one way")), queue);
            producer.send(batch(), queue);
            producer.send(new Message(GoldenSession.AUTO_CREATED_TOPIC, GoldenSession.utf8("first")));
            sendOversize(producer, queue);
        } finally {
            producer.shutdown();
        }
    }

    private static Message decorated() {
        Message message = new Message(GoldenSession.TOPIC, "A", "key-1 key-2", GoldenSession.utf8("d\u00e9cor\u00e9 \u4e2d\u6587"));
        message.setFlag(7);
        message.setWaitStoreMsgOK(false);
        message.putUserProperty("origin", "\u6771\u4eac");
        return message;
    }

    private static List<Message> batch() {
        return IntStream.range(0, 3)
                .mapToObj(i -> new Message(GoldenSession.TOPIC, "A", "batch-" + i, GoldenSession.utf8("batched " + i)))
                .toList();
    }

    private static void sendOversize(DefaultMQProducer producer, MessageQueue queue) throws Exception {
        byte[] body = new byte[OVERSIZE_BYTES];
        new java.util.Random(1).nextBytes(body);
        try {
            producer.send(new Message(GoldenSession.TOPIC, body), queue);
            throw new IllegalStateException("the broker took a message of 4 MiB + 1 byte");
        } catch (MQBrokerException expected) {
            System.out.println("refused as it must be: code " + expected.getResponseCode());
        }
    }
}
