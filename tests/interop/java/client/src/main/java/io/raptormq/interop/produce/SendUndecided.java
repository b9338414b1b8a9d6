package io.raptormq.interop.produce;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends messages whose delivery the broker decides later, prints "sent", and answers the broker until it is killed: timer messages ("timer 0", ...), and
 * transactions that stay open until the broker asks, of which those with an even number are committed ("open 0", ...). Arguments: name servers, topic, how
 * many of each kind, the time (ms) from a send to the delivery of its timer.
 */
public final class SendUndecided {
    private static final int OFTEN_MS = 1_000;

    private SendUndecided() {}

    public static void main(String[] arguments) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer("send-undecided");
        producer.setNamesrvAddr(arguments[0]);
        producer.setPollNameServerInterval(OFTEN_MS);
        producer.setHeartbeatBrokerInterval(OFTEN_MS);
        producer.setTransactionListener(new ByNumber());
        producer.start();
        for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
            Message timer = message(arguments[1], "timer " + number);
            timer.setDeliverTimeMs(System.currentTimeMillis() + Long.parseLong(arguments[3]));
            expectStored(producer.send(timer).getSendStatus());
            expectStored(producer.sendMessageInTransaction(message(arguments[1], "open " + number), null).getSendStatus());
        }
        System.out.println("sent");
        Thread.sleep(Long.MAX_VALUE);
    }

    private static Message message(String topic, String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    private static void expectStored(SendStatus status) throws MQClientException {
        if (status != SendStatus.SEND_OK) {
            throw new MQClientException(status.ordinal(), "not stored: " + status);
        }
    }

    private static final class ByNumber implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            int number = Integer.parseInt(new String(message.getBody(), StandardCharsets.UTF_8).split(" ")[1]);
            return number % 2 == 0 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
        }
    }
}
