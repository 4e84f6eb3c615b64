// A perceptron with one hidden layer and its loss, on one device. The tutorial (docs/tutorial.md) follows it through
// every stage; `rhino plan`, `run` and `check` take it as it is.
func.func @main(
    %w1: tensor<256x1024xf32> {rhino.name = "w1", rhino.role = "parameter"},
    %w2: tensor<1024x128xf32> {rhino.name = "w2", rhino.role = "parameter"},
    %x: tensor<512x256xf32> {rhino.name = "x", rhino.role = "input"},
    %y: tensor<512x128xf32> {rhino.name = "y", rhino.role = "input"})
    -> (tensor<f32> {rhino.name = "loss", rhino.role = "loss"}) {
  %h = hlo.dot_general %x, %w1 batch [] x [] contract [1] x [0] : (tensor<512x256xf32>, tensor<256x1024xf32>) -> tensor<512x1024xf32>
  %a = hlo.tanh %h : tensor<512x1024xf32>
  %z = hlo.dot_general %a, %w2 batch [] x [] contract [1] x [0] : (tensor<512x1024xf32>, tensor<1024x128xf32>) -> tensor<512x128xf32>
  %d = hlo.sub %z, %y : tensor<512x128xf32>
  %s = hlo.mul %d, %d : tensor<512x128xf32>
  %loss = hlo.reduce "sum" %s dims [0, 1] : tensor<512x128xf32> -> tensor<f32>
  func.return %loss : tensor<f32>
}
