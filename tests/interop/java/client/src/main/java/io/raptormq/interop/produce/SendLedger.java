package io.raptormq.interop.produce;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.exception.RemotingException;

/**
 * Sends the numbers 0, 1, ... one after the other, each once, and prints a line "acknowledged " and the number for each that was stored, until so many were.
 * Arguments: name servers, topic, how many, the interval (ms) at which the client asks for routes.
 */
public final class SendLedger {
    private static final int PATIENCE_MS = 60_000;
    private static final int PAUSE_MS = 50;

    private SendLedger() {}

    public static void main(String[] arguments) throws MQClientException, InterruptedException {
        DefaultMQProducer producer = new DefaultMQProducer("send-ledger");
        producer.setNamesrvAddr(arguments[0]);
        producer.setRetryTimesWhenSendFailed(0);
        producer.setPollNameServerInterval(Integer.parseInt(arguments[3]));
        producer.start();
        int missing = Integer.parseInt(arguments[2]);
        for (long number = 0; missing > 0; number++) {
            byte[] body = Long.toString(number).getBytes(StandardCharsets.UTF_8);
            try {
                if (producer.send(new Message(arguments[1], body), PATIENCE_MS).getSendStatus() == SendStatus.SEND_OK) {
                    System.out.println("acknowledged " + number);
                    missing--;
                }
            } catch (MQBrokerException | MQClientException | RemotingException error) {
                System.err.println(error.getMessage());
                Thread.sleep(PAUSE_MS);
            }
        }
        producer.shutdown();
        System.exit(0);
    }
}
