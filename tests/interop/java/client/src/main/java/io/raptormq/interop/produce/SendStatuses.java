package io.raptormq.interop.produce;

import java.nio.charset.StandardCharsets;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.remoting.exception.RemotingException;

/** Sends the numbers 0, 1, ... and prints the status of each, such as "sent 0 SEND_OK". Arguments: name servers, topic, how many, the first number. */
public final class SendStatuses {
    private SendStatuses() {}

    public static void main(String[] arguments) throws MQBrokerException, MQClientException, RemotingException, InterruptedException {
        DefaultMQProducer producer = new DefaultMQProducer("send-statuses");
        producer.setNamesrvAddr(arguments[0]);
        producer.start();
        int first = Integer.parseInt(arguments[3]);
        for (int number = first; number < first + Integer.parseInt(arguments[2]); number++) {
            byte[] body = Integer.toString(number).getBytes(StandardCharsets.UTF_8);
            System.out.println("sent " + number + " " + producer.send(new Message(arguments[1], body)).getSendStatus());
        }
        producer.shutdown();
        System.exit(0);
    }
}
