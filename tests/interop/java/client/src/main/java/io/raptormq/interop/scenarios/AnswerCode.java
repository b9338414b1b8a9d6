package io.raptormq.interop.scenarios;

import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/** The code that a call of a client is answered with. */
final class AnswerCode {
    private AnswerCode() {}

    interface Call {
        void run() throws Exception;
    }

    /** 0 when the call succeeds. */
    static int of(Call call) throws Exception {
        try {
            call.run();
            return 0;
        } catch (MQBrokerException refused) {
            return refused.getResponseCode();
        } catch (MQClientException refused) {
            return refused.getResponseCode();
        }
    }
}
