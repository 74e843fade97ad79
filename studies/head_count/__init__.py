"""The head-count paper on images and text: CIFAR-10 on canvases, candidate sets of passages (Tables 6 to 9)."""
